#include "motet/train/freeze.h"

#include "motet/core/error.h"

namespace motet {

bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, from = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

int64_t freeze(ModelImpl& model, const std::vector<std::string>& patterns) {
  for (const std::string& given : patterns) {
    const bool learns = given.starts_with('!');
    const std::string_view pattern = std::string_view(given).substr(learns ? 1 : 0);
    bool found = false;
    for (auto& item : model.named_parameters()) {
      if (!matches(pattern, item.key())) continue;
      item.value().requires_grad_(learns);
      found = true;
    }
    if (!found) fail_usage("--freeze: ", quote(given), " names no parameter, want for instance '*.mlp.*'");
  }
  int64_t frozen = 0;
  bool any = false;
  for (const Tensor& p : model.parameters()) {
    if (!p.requires_grad()) frozen += p.numel();
    any = any || p.requires_grad();
  }
  if (!any) fail_usage("--freeze: every parameter is frozen, want some that learn");
  return frozen;
}

}  // namespace motet
