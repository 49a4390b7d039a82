#pragma once
#include "motet/lab/lab.h"
#include "motet/models/model.h"

namespace motet {

/// Where tokens stand in another way than in the training.
struct LengthScaling {
  std::string name;        // "dynamic 4"
  nlohmann::json options;  // of the rotary embedding
};
/// Of a kind and a factor, "dynamic 4". Throws UsageError that begins with `place`.
LengthScaling read_scaling(const std::string& name, const std::string& place);

/// The same parameters, not copies of them, in a model of another configuration.
Model with_config(ModelImpl&, const ModelConfig&);

/// How a trained model is scored beyond its length.
struct Lengths {
  std::vector<int64_t> times = {1, 2, 4, 8};  // windows of so many times the trained length
  int64_t tokens = 40'000;                    // of the validation text
  std::vector<LengthScaling> scalings;        // none: as it was trained, which is always scored
};

/// Of {"times": [1, 8], "tokens": N, "scaling": ["dynamic 4", "linear 2", "ntk 8"]}. Throws UsageError.
Lengths read_lengths(const nlohmann::json& given);

/// Throws UsageError for scalings that the model does not take and windows that the tokens do not fill. `trained`: the
/// length T.
void check_lengths(const ModelConfig&, int64_t trained, const Lengths&);

/// "loss{8T}" and "loss{8T, dynamic 4}": what `motet eval -c 8T --stride T` says of the tokens, T being the length
/// `trained`: a window scores the tokens that those before it did not, the first one all of its own.
std::map<std::string, double> losses_at(ModelImpl&, int64_t trained, const TokenSequence& validation, const Lengths&);
/// Their names; a model without rotary embedding has none of a scaling.
std::vector<std::string> metrics_of(const Lengths&);

}  // namespace motet
