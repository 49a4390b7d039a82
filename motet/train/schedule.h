#pragma once
#include "motet/train/options.h"

namespace motet {

/// The learning rate of a step as a part of its peak. `done`: the part of the budget that is done after the step, 0 to
/// 1; `steps`: of the whole budget. After a rise by done / warmup, with x the part of what remains:
/// cosine       last + (1 - last) (1 + cos(pi x)) / 2
/// linear       1 - (1 - last) x
/// wsd          1, and over the last `decay` of the budget 1 - (1 - last) fall, by decay_shape. arXiv:2405.18392
/// inverse_sqrt sqrt(warmup / done), of one step without a warmup. arXiv:1706.03762
/// constant     1
double learning_rate_factor(const TrainOptions&, double done, int64_t steps);

}  // namespace motet
