#include "motet/train/text_data.h"

#include "motet/core/error.h"
#include "motet/data/corpus.h"
#include "motet/text/load.h"

namespace motet {

TextData load_text_data(const RunConfig& run, std::shared_ptr<const Tokenizer> tokenizer) {
  const Corpus corpus = load_corpus(run.texts);
  const Split split = split_text(corpus.text, run.data.at("validation").get<double>());
  TextData data;
  data.name = corpus.name;
  if (!tokenizer) tokenizer = choose_tokenizer(run.data.at("tokenizer").get<std::string>(), corpus.text);
  data.tokenizer = std::move(tokenizer);
  data.train = data.tokenizer->encode(split.train);
  data.validation = data.tokenizer->encode(split.validation);
  const int64_t needed = run.train.at("context").get<int64_t>() + 1;
  for (const auto& [what, tokens] : {std::pair("training", &data.train), std::pair("validation", &data.validation)})
    if (static_cast<int64_t>(tokens->size()) < needed)
      fail(corpus.name, ": the ", what, " part has ", tokens->size(), " tokens, want at least ", needed,
           " for a context of ", needed - 1);
  data.bytes_per_token = static_cast<double>(split.validation.size()) / static_cast<double>(data.validation.size());
  return data;
}

TokenTensors as_tensors(const Batch& batch) {
  const auto tensor = [&](const std::vector<int64_t>& values) {
    return at::from_blob(const_cast<int64_t*>(values.data()), {batch.rows, batch.columns}, at::kLong).clone();
  };
  return {tensor(batch.inputs), tensor(batch.targets)};
}

}  // namespace motet
