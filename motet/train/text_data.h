#pragma once
#include <memory>

#include "motet/data/batches.h"
#include "motet/text/tokenizer.h"
#include "motet/train/run_config.h"

namespace motet {

/// A text as tokens: the training part and the validation part.
struct TextData {
  std::string name;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<int32_t> train, validation;
  double bytes_per_token = 1;  // of the validation part
};

/// Reads and splits the texts of a run, as tokens of `tokenizer` or, without one, of that which the run names. Throws
/// Error in one line for missing, empty, binary or too short texts.
TextData load_text_data(const RunConfig&, std::shared_ptr<const Tokenizer> tokenizer = nullptr);

/// A batch as tensors [rows, columns] int64.
struct TokenTensors {
  Tensor inputs, targets;
};
TokenTensors as_tensors(const Batch&);

}  // namespace motet
