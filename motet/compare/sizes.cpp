#include "motet/compare/sizes.h"

#include <set>

#include "motet/core/error.h"

namespace motet {

std::vector<ModelSize> parse_sizes(const std::string& given) {
  std::vector<ModelSize> sizes;
  std::set<std::string> names;
  for (const std::string& name : split(given, ',')) {
    if (!names.insert(name).second) fail_usage("--sizes: ", name, " stands there twice");
    ModelSize size{.name = name};
    const std::vector<std::string> parts = split(name, 'x');
    const std::pair<const char*, int64_t*> numbers[] = {{"model.hidden_size", &size.hidden_size},
                                                        {"model.num_layers", &size.num_layers},
                                                        {"model.attention.num_heads", &size.num_heads}};
    if (parts.size() > std::size(numbers))
      fail_usage("--sizes: ", quote(name), ", want WIDTH, WIDTHxLAYERS or WIDTHxLAYERSxHEADS");
    for (size_t i = 0; i < parts.size(); ++i)
      *numbers[i].second = checked({.name = "", .type = OptionType::integer, .default_value = 1, .min = 1, .max = 1e6},
                                   parts[i], text("--sizes: ", name, ": ", numbers[i].first));
    sizes.push_back(size);
  }
  if (sizes.size() < 2) fail_usage("--sizes: ", quote(given), " is one size, want at least 2");
  return sizes;
}

RunConfig sized(RunConfig run, const ModelSize& size) {
  if (run.model.intermediate_size != 0)
    fail_usage("--sizes: model.intermediate_size is ", run.model.intermediate_size,
               ", want 0: the feed-forward grows with the width");
  run.model.hidden_size = size.hidden_size;
  if (size.num_layers > 0) run.model.num_layers = size.num_layers;
  if (size.num_heads > 0) run.attention_given["num_heads"] = size.num_heads;
  return run;
}

}  // namespace motet
