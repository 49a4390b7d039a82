#pragma once
#include <nlohmann/json.hpp>

#include "motet/eval/multiple_choice/likelihood.h"

namespace motet {

/// Mean and its standard error over items: the sample's standard deviation / sqrt(n), 0 for one item.
struct Rate {
  double mean = 0, error = 0;
};
Rate rate_of(const std::vector<double>& values);

/// What a file's items come to.
struct ChoiceResult {
  std::string file;  // "all" for the sum of several
  int64_t items = 0;
  Rate accuracy;            // the likeliest ending is right; of a single ending: each token is the likeliest
  Rate accuracy_by_length;  // likewise by log-likelihood / bytes of the ending
  double nats = 0;          // mean negative log-likelihood of the right ending
};

/// The line that is kept of an item, and whether a line from a file is one of this item. Throws Error for a
/// log-likelihood that is not finite.
bool is_line_of(const nlohmann::json& line, const ScoredItem&);
nlohmann::json item_line(const ScoredItem&, const ItemScore&, const std::string& file);

/// Of each file by its number in the lines, and of all together behind them when there are several.
std::vector<ChoiceResult> choice_results(const std::vector<std::string>& files,
                                         const std::vector<nlohmann::json>& lines, const ChoiceTask&);

}  // namespace motet
