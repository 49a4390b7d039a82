#include "motet/core/error.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "motet/core/utf8.h"

namespace motet {
namespace {

// Optimal string alignment distance, so that a swap of two neighbours counts once.
size_t distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  };
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = cost[i - 1][j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

// "params" of "parameters": the first letter, and all others in their order.
bool abbreviates(std::string_view name, std::string_view whole) {
  if (name.size() < 3 || whole.empty() || name[0] != whole[0]) return false;
  for (const char letter : name) {
    const size_t at = whole.find(letter);
    if (at == whole.npos) return false;
    whole.remove_prefix(at + 1);
  }
  return true;
}

// Slips between two names that may still mean the same.
size_t allowed_slips(std::string_view name, std::string_view candidate) {
  const size_t section = name.rfind('.') + 1;  // 0 without a dot
  if (candidate.starts_with(name.substr(0, section))) name.remove_prefix(section), candidate.remove_prefix(section);
  const size_t longer = std::max(name.size(), candidate.size());
  return abbreviates(name, candidate) ? longer / 2 : std::max<size_t>(longer, 3) / 3;
}

std::string escaped(std::string_view bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(bytes.substr(at));
    const auto first = static_cast<unsigned char>(bytes[at]);
    if (step.kind == Utf8Step::Kind::character && first >= 0x20 && first != 0x7F) {
      out += bytes.substr(at, step.size);
      at += step.size;
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof escape, first == '\n' ? "\\n" : "\\x%02x", static_cast<unsigned>(first));
    out += escape;
    ++at;
  }
  return out;
}

}  // namespace

std::string quote(std::string_view bytes) {
  constexpr size_t kLongest = 80;
  if (bytes.size() <= kLongest) return "'" + escaped(bytes) + "'";
  const size_t head = utf8_boundary(bytes, kLongest / 2, 1),
               tail = utf8_boundary(bytes, bytes.size() - kLongest / 2, -1);
  if (head >= tail) return "'" + escaped(bytes) + "'";
  return "'" + escaped(bytes.substr(0, head)) + "'...'" + escaped(bytes.substr(tail)) + "'";
}

std::string joined(const std::vector<std::string>& known) {
  std::string out;
  for (const std::string& name : known) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  constexpr size_t kLongest = 80;  // no name is longer, and the distance costs a product of lengths
  if (name.size() > kLongest) return "";
  std::string best;
  size_t best_distance = SIZE_MAX;
  for (const std::string& candidate : known) {
    const size_t d = distance(name, candidate);
    if (d <= allowed_slips(name, candidate) && d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

std::string unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(name, known);
  std::string out = text("unknown ", what, " ", quote(name), ": ");
  if (!nearest.empty()) out += "nearest is '" + nearest + "'; ";
  return out + (known.empty() ? "none is known" : "known: " + joined(known));
}

}  // namespace motet
