#include "motet/train/text_data.h"

#include "motet/core/error.h"
#include "motet/data/bounded_tokens.h"
#include "motet/data/corpus.h"
#include "motet/ops/device.h"
#include "motet/text/readers/load.h"
#include "motet/text/token_bytes.h"

namespace motet {
namespace {

std::shared_ptr<const Tokenizer> named_tokenizer(const RunConfig& run, std::string_view text) {
  const std::string name = run.data.tokenizer;
  return choose_tokenizer(name == "auto" ? "chars" : name, text);
}

void check_length(const TextData& data, const RunConfig& run) {
  const auto needed = static_cast<uint64_t>(run.train.context) + 1;
  for (const auto& [what, tokens] : {std::pair("training", data.train), std::pair("validation", data.validation)})
    if (tokens->size() < needed)
      fail(data.name, ": the ", what, " part has ", tokens->size(), " tokens, want at least ", needed,
           " for a context of ", needed - 1);
}

TextData load_prepared(const RunConfig& run, std::shared_ptr<const Tokenizer> tokenizer) {
  const PreparedData prepared = open_prepared_data(run.texts.front());
  if (!tokenizer && run.data.tokenizer != "auto") tokenizer = named_tokenizer(run, "");
  TextData data{.name = prepared.name, .tokenizer = tokenizer_of(prepared, std::move(tokenizer))};
  data.documents_apart = run.data.documents == Documents::apart;
  const auto bounded = [&](const std::shared_ptr<const TokenSequence>& tokens) -> std::shared_ptr<const TokenSequence> {
    if (!tokens || prepared.manifest) return tokens;
    return std::make_shared<BoundedTokens>(tokens, data.tokenizer->vocabulary_size(), prepared.name);
  };
  data.train = bounded(prepared.train);
  data.validation = bounded(prepared.validation);
  if (!data.validation) {  // the last tokens, as of a text
    const uint64_t all = data.train->size();
    const auto kept = static_cast<uint64_t>(static_cast<double>(all) * run.data.validation);
    data.validation = std::make_shared<TokenPart>(data.train, all - kept, kept);
    data.train = std::make_shared<TokenPart>(data.train, 0, all - kept);
  }
  check_length(data, run);
  data.token_bytes = token_byte_counts(*data.tokenizer);
  return data;
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_of(const PreparedData& data, std::shared_ptr<const Tokenizer> given) {
  if (data.tokenizer.empty()) {
    if (!given) fail(data.name, ": has no tokenizer, want --tokenizer FILE");
    return given;
  }
  std::shared_ptr<const Tokenizer> own = load_tokenizer(data.tokenizer);
  const int64_t size = own->vocabulary_size();
  if (static_cast<uint64_t>(size) != data.manifest->vocabulary)
    fail(data.tokenizer, ": has ", size, " tokens, want the ", data.manifest->vocabulary, " of the data");
  if (!given) return own;
  if (given->vocabulary_size() != size)
    fail(data.name, ": was prepared with another tokenizer, of ", size, " tokens, not ", given->vocabulary_size());
  for (int32_t id = 0; id < size; ++id)
    if (given->piece(id) != own->piece(id))
      fail(data.name, ": was prepared with another tokenizer, token ", id, " is ", quote(own->piece(id)), " there and ",
           quote(given->piece(id)), " here");
  return given;
}

TextData load_text_data(const RunConfig& run, std::shared_ptr<const Tokenizer> tokenizer) {
  for (const std::string& path : run.texts) {
    if (!is_prepared_data(path)) continue;
    if (run.texts.size() > 1) fail_usage(path, " is prepared data and there are other texts, want it alone");
    return load_prepared(run, std::move(tokenizer));
  }
  if (run.data.documents == Documents::apart)
    fail_usage("data.documents: 'apart' needs documents, want prepared data (motet data prepare)");
  const Corpus corpus = load_corpus(run.texts);
  const Split split = split_text(corpus.text, run.data.validation);
  TextData data{.name = corpus.name, .tokenizer = std::move(tokenizer)};
  if (!data.tokenizer) data.tokenizer = named_tokenizer(run, corpus.text);
  data.train = std::make_shared<MemoryTokens>(data.tokenizer->encode(split.train));
  data.validation = std::make_shared<MemoryTokens>(data.tokenizer->encode(split.validation));
  check_length(data, run);
  data.token_bytes = token_byte_counts(*data.tokenizer);
  return data;
}

TokenTensors as_tensors(const Batch& batch, at::Device device) {
  const auto tensor = [&](const std::vector<int64_t>& values) {
    return moved(std::span(values), {batch.rows, batch.columns}, device);
  };
  return {tensor(batch.inputs), tensor(batch.targets), batch.documents.empty() ? Tensor() : tensor(batch.documents)};
}

}  // namespace motet
