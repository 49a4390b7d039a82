#pragma once
#include "motet/compare/arms.h"
#include "motet/lab/lab.h"
#include "motet/lab/lengths.h"
#include "motet/lab/look.h"
#include "motet/lab/recall.h"
#include "motet/lab/task_cell.h"

namespace motet {

/// A second training of the model on the same text, for other positions, as of `motet train --init`.
struct Then {
  RunConfig run;
  nlohmann::json positions;  // options of attention (models/lengthen.h)
};

/// The options of a cell: sections model, train and data as in a run's configuration, `mechanism` as a contender of a
/// comparison, and what is equal between it and the baseline.
struct TrainCell {
  RunConfig run;
  Match match = Match::parameters;
  std::optional<TaskCell> task;    // in place of a text
  std::optional<Lengths> lengths;  // at which the trained model is scored
  std::optional<Look> look;        // at the trained model
  std::optional<Recall> recall;    // of the trained model
  std::optional<Then> then;
  bool watch = false;  // the training is measured too, and what it was when it diverged
};

/// Of a cell's options, with a seed (from 1) and a factor of the learning rate. Throws UsageError.
TrainCell read_train_cell(const Lab&, const nlohmann::json& options, int64_t seed, double rate);

}  // namespace motet
