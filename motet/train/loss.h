#pragma once
#include "motet/models/model.h"
#include "motet/train/options.h"
#include "motet/train/text_data.h"

namespace motet {

/// What a step lowers, and the cross entropy that it reports; numbers, means over the learned targets, in nats.
struct TrainingLoss {
  Tensor objective, cross_entropy;  // the graph is the objective's
};

/// (1 - s) cross entropy + s (its mean over all tokens as targets) + z (log of the softmax's sum)^2, with s =
/// label_smoothing and z = z_loss of the options (arXiv:1512.00567, arXiv:2204.02311). loss_rows > 0: logits of so many
/// tokens at once, their gradients made on the way, so that all logits are never held. `factor` multiplies the
/// objective alone, before any gradient is made: those of float16 logits would vanish without the factor of LossScale.
TrainingLoss training_loss(ModelImpl&, const TokenTensors&, const TrainOptions&, const Dropout& = {},
                           double factor = 1);

}  // namespace motet
