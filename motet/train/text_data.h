#pragma once
#include <memory>

#include "motet/data/batches.h"
#include "motet/data/corpus.h"
#include "motet/data/examples.h"
#include "motet/data/prepared.h"
#include "motet/tasks/task.h"
#include "motet/text/tokenizer.h"
#include "motet/train/run_config.h"

namespace motet {

/// A source of a mixture: where it lies in the training tokens, and its weight.
struct TextSource {
  std::string name;
  BatchPart rows;
};

/// A text as tokens: the training part and the validation part. Those of a mixture lie one after another.
struct TextData {
  std::string name;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: its ids mean what a task says
  std::shared_ptr<const TokenSequence> train, validation;
  std::vector<TextSource> parts;     // of a mixture; empty: it is one text
  std::vector<int32_t> token_bytes;  // of text, by id
  bool documents_apart = false;      // no document sees another
  std::shared_ptr<const Task> task;  // whose answers are scored; null: a text, or the caller scores them
  nlohmann::json hashes;             // {"train-00000.tokens": "0123456789abcdef"}: what a resumed run must find again

  int64_t vocabulary() const { return task ? task->vocabulary() : tokenizer->vocabulary_size(); }
  /// What a person reads in place of ids, one behind another.
  std::vector<std::string> words(std::span<const int64_t> ids) const;
};

/// A text or prepared data, before it is known by which tokenizer.
struct OpenedSource {
  std::string name;
  Corpus corpus;
  std::optional<PreparedData> prepared;  // in place of the corpus
};

/// Throws what load_corpus and open_prepared_data throw, UsageError for prepared data beside another path.
OpenedSource open_source(const std::vector<std::string>& paths);

struct Halves {
  std::shared_ptr<const TokenSequence> train, validation;
};

/// The tokens of a source: of prepared data with a validation part both of its own, else the last of them for
/// validation, of a text by its bytes.
Halves halves_of(const OpenedSource&, const Tokenizer&, double kept_for_validation);

/// Reads and splits the texts of a run, as tokens of `tokenizer` or, without one, of that which the run names; or maps
/// prepared data (motet data prepare, llm.c), which has its own tokenizer and may have its own validation part; or each
/// source of a mixture likewise; or a file of examples (data/examples.h), which wants a tokenizer and whose answers
/// alone are learned; or makes
/// the episodes of a task (train/task_data.h). Throws Error in one line for missing, empty, binary or too short texts
/// and for a tokenizer that is not that of the data.
TextData load_text_data(const RunConfig&, std::shared_ptr<const Tokenizer> tokenizer = nullptr,
                        const ExampleForm& = {});

/// The tokenizer of prepared data, which must have the tokens of `given` where both are there. Throws Error when they
/// differ or both are missing.
std::shared_ptr<const Tokenizer> tokenizer_of(const PreparedData&, std::shared_ptr<const Tokenizer> given);

/// A batch as tensors [rows, columns] int64 on a device, which need not have arrived there when the call returns;
/// documents are undefined when the batch has none. Targets may be kLeftOut.
struct TokenTensors {
  Tensor inputs, targets, documents;
  Tensor starts = {};  // [rows, 1] int64: where a row's positions begin; undefined: at 0
  Tensor asked =
      {};  // [N] int64: where targets stand that are not left out, in the rows one behind another; undefined: all
};
TokenTensors as_tensors(const Batch&, at::Device = at::kCPU);

}  // namespace motet
