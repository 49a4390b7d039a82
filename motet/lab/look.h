#pragma once
#include "motet/data/tokens.h"
#include "motet/models/model.h"
#include "motet/probe/options.h"

namespace motet {

/// What is looked at in a trained model.
struct Look {
  int64_t tokens = 40'000;                                                // of the validation text
  std::vector<int64_t> bits;                                              // of rounded logits; none: not rounded
  std::vector<LogitRounding::Per> scales = {LogitRounding::Per::tensor};  // which of them share a scale
};

/// Of {"tokens": N, "bits": [8, 4], "scale": ["tensor", "row"]}. Throws UsageError.
Look read_look(const nlohmann::json& given);

/// Throws UsageError when the tokens, or those there are, do not fill a window of the model, and for bits of a model
/// that is not causal.
void check_look(const ModelConfig&, const TokenSequence& validation, const Look&);

/// From windows of the trained length, side by side:
///   logits{top 1} ... {top 100}, {median}, {kurtosis}   of attention logits, states{...} of layers' outputs, pooled
///   probe{NAME}                                         numbers of probe/closely.h, the mean of layers and heads
///   loss{all bits}, loss{4 bits, tensor}                what `motet eval --logit-bits 4 --logit-scale tensor` says
///   rise{4 bits, tensor}                                the second less the first
std::map<std::string, double> looked(ModelImpl&, const TokenSequence& validation, const Look&);
/// Their names; which numbers of the probe there are is the mechanism's matter: "probe{...}".
std::vector<std::string> metrics_of(const Look&);

}  // namespace motet
