#pragma once
#include "motet/report/html.h"
#include "motet/train/run_config.h"
#include "motet/train/text_data.h"

namespace motet {

/// What a training has to say beside its folder.
struct TrainPresentation {
  std::string command;         // that this process was called with
  std::string prompt, sample;  // a prompt and its continuation by the model; "": none
  bool done = false;           // the budget is used up
  std::string stopped_by;      // "": somebody did, or nothing
};

/// report.html of a run: the numbers of its metrics.jsonl as curves, the model's weights over the first tokens of the
/// validation text, texts, commands and the configuration. Throws Error when metrics.jsonl is damaged.
ReportData train_report(const std::filesystem::path& run, const RunConfig&, const TextData&, ModelImpl&,
                        const TrainPresentation&);

}  // namespace motet
