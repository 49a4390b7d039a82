#pragma once
#include <string>
#include <vector>

#include "motet/models/model.h"
#include "motet/train/options.h"

namespace motet {

/// Keys of [train] that contenders may differ in: none changes the budget or the data.
const std::vector<std::string>& own_training();

/// Throws UsageError that begins with `place` where a key of own_training() has no effect: the optimizer or the
/// schedule does not read it.
void check_has_effect(const std::string& key, const TrainOptions&, const std::string& place);

/// One key, and the values with which the first seed trains every contender; the others train with the best of them.
struct Sweep {
  std::string section, key;    // "train", "learning_rate"
  std::vector<double> values;  // two or more, in the order given

  std::string path() const { return section + "." + key; }
  /// "train.learning_rate=0.001": the setting of runs with this value.
  std::string setting(size_t value) const;
  std::string shown(size_t value) const;  // "0.001"
  std::string text() const;               // "train.learning_rate=0.001,0.002,0.004"
  void apply(size_t value, ModelConfig&, TrainOptions&) const;
};

/// "train.learning_rate=1e-3,2e-3,4e-3". Throws UsageError for a key that is no number, for one that changes the data,
/// the budget or the size of the model, for a value out of its range or twice, and for fewer than two.
Sweep parse_sweep(const std::string&);

}  // namespace motet
