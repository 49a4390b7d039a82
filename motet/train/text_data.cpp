#include "motet/train/text_data.h"

#include <filesystem>

#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/data/bounded_tokens.h"
#include "motet/data/hash.h"
#include "motet/ops/device.h"
#include "motet/text/readers/load.h"
#include "motet/text/token_bytes.h"
#include "motet/train/task_data.h"

namespace motet {
namespace {

std::shared_ptr<const Tokenizer> named_tokenizer(const RunConfig& run, std::string_view text) {
  const std::string name = run.data.tokenizer;
  return choose_tokenizer(name == "auto" ? "chars" : name, text);
}

// Of shards that have none of their own: the number of tokens, and some of them from all over.
std::string sampled_hash(const TokenSequence& tokens) {
  constexpr uint64_t kPieces = 64, kPiece = 4096;
  Hash64 hash;
  const uint64_t size = tokens.size();
  hash.add(std::to_string(size));
  for (uint64_t i = 0; i < kPieces; ++i) {
    const uint64_t begin = size / kPieces * i;
    const std::vector<int64_t> piece = tokens.slice(begin, std::min(kPiece, size - begin));
    hash.add({reinterpret_cast<const char*>(piece.data()), piece.size() * sizeof(int64_t)});
  }
  return hash_text(hash.value());
}

nlohmann::json hashes_of(const PreparedData& data) {
  nlohmann::json all;
  if (!data.manifest) return {{"tokens", sampled_hash(*data.train)}};
  all[data.manifest->tokenizer_file] = hash_text(data.manifest->tokenizer_hash);
  for (const SplitRecord* split : {&data.manifest->train, &data.manifest->validation})
    for (const ShardRecord& shard : split->shards) all[shard.file] = hash_text(shard.hash);
  return all;
}

// Rows of examples; the last of them are for validation.
TextData load_examples(const RunConfig& run, std::shared_ptr<const Tokenizer> tokenizer, const ExampleForm& form) {
  const std::string& path = run.texts.front();
  if (!tokenizer) fail_usage(path, ": examples have no tokenizer of their own, want --init or --tokenizer");
  const std::vector<Example> all = read_examples(path, *tokenizer, form);
  const size_t kept = num_validation_examples(all.size(), run.data.validation, path);
  Hash64 hash;
  for (const Example& example : all)
    for (size_t i = 0; i < example.ids.size(); ++i)
      hash.add(text(example.ids[i], i == 0 ? "|" : "", example.learned[i] ? "+" : "-"));
  const auto rows_of = [&](size_t first, size_t last) {
    const std::vector<Example> part(all.begin() + static_cast<std::ptrdiff_t>(first),
                                    all.begin() + static_cast<std::ptrdiff_t>(last));
    auto rows = std::make_shared<ExampleRows>(part, run.train.context, path);
    if (const std::string remark = rows->remark(); !remark.empty()) log_warn(text(path, ": ", remark));
    return rows;
  };
  TextData data{.name = std::filesystem::path(path).filename().string(), .tokenizer = tokenizer};
  data.train = rows_of(0, all.size() - kept), data.validation = rows_of(all.size() - kept, all.size());
  data.documents_apart = true;
  data.hashes = {{"examples", hash_text(hash.value())}};
  data.token_bytes = token_byte_counts(*tokenizer);
  return data;
}

// That of the prepared data, which all must share, or that which the run names, made of all texts where it is made.
std::shared_ptr<const Tokenizer> tokenizer_for(const std::vector<OpenedSource>& sources, const RunConfig& run,
                                               std::shared_ptr<const Tokenizer> tokenizer) {
  std::string texts;
  bool any_prepared = false;
  for (const OpenedSource& source : sources) texts += source.corpus.text, any_prepared |= source.prepared.has_value();
  if (any_prepared && !tokenizer && texts.empty() && run.data.tokenizer == "chars")
    fail_usage("data.tokenizer: 'chars' is made of a text, and prepared data has its own, want it left out");
  if (any_prepared && !tokenizer && run.data.tokenizer != "auto") tokenizer = named_tokenizer(run, texts);
  for (const OpenedSource& source : sources)
    if (source.prepared) tokenizer = tokenizer_of(*source.prepared, std::move(tokenizer));
  return tokenizer ? tokenizer : named_tokenizer(run, texts);
}

using Tokens = std::shared_ptr<const TokenSequence>;

Halves halves_of(const PreparedData& prepared, const Tokenizer& tokenizer, double kept_for_validation) {
  const auto bounded = [&](const Tokens& tokens) -> Tokens {
    if (!tokens || prepared.manifest) return tokens;
    return std::make_shared<BoundedTokens>(tokens, tokenizer.vocabulary_size(), prepared.name);
  };
  const Tokens train = bounded(prepared.train), validation = bounded(prepared.validation);
  if (validation) return {train, validation};
  const uint64_t all = train->size();  // the last tokens, as of a text
  const auto kept = static_cast<uint64_t>(static_cast<double>(all) * kept_for_validation);
  return {std::make_shared<TokenPart>(train, 0, all - kept), std::make_shared<TokenPart>(train, all - kept, kept)};
}

Halves halves_of(const Corpus& corpus, const Tokenizer& tokenizer, double kept_for_validation) {
  const Split split = split_text(corpus.text, kept_for_validation);
  return {std::make_shared<MemoryTokens>(tokenizer.encode(split.train)),
          std::make_shared<MemoryTokens>(tokenizer.encode(split.validation))};
}

void check_length(const std::string& name, const Halves& halves, int64_t context) {
  const auto needed = static_cast<uint64_t>(context) + 1;
  for (const auto& [what, tokens] : {std::pair("training", halves.train), std::pair("validation", halves.validation)})
    if (tokens->size() < needed)
      fail(name, ": the ", what, " part has ", tokens->size(), " tokens, want at least ", needed, " for a context of ",
           context);
}

}  // namespace

std::vector<std::string> TextData::words(std::span<const int64_t> ids) const {
  if (!task) return token_texts(*tokenizer, std::vector<int32_t>(ids.begin(), ids.end()));
  std::vector<std::string> all;
  for (const int64_t id : ids) all.push_back(task->word(static_cast<int32_t>(id)));
  return all;
}

OpenedSource open_source(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (!is_prepared_data(path)) continue;
    if (paths.size() > 1) fail_usage(path, " is prepared data and there are other texts, want it alone");
    PreparedData data = open_prepared_data(path);
    return {.name = data.name, .corpus = {}, .prepared = std::move(data)};
  }
  Corpus corpus = load_corpus(paths);
  return {.name = corpus.name, .corpus = std::move(corpus), .prepared = std::nullopt};
}

Halves halves_of(const OpenedSource& source, const Tokenizer& tokenizer, double kept_for_validation) {
  return source.prepared ? halves_of(*source.prepared, tokenizer, kept_for_validation)
                         : halves_of(source.corpus, tokenizer, kept_for_validation);
}

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

TextData load_text_data(const RunConfig& run, std::shared_ptr<const Tokenizer> tokenizer, const ExampleForm& form) {
  if (!run.task.is_null()) return task_data(run);
  for (const std::string& path : run.texts) {
    if (!is_examples(path)) continue;
    if (run.texts.size() > 1) fail_usage(path, " has examples and there are other texts, want it alone");
    return load_examples(run, std::move(tokenizer), form);
  }
  for (const MixtureSource& source : run.mixture)
    if (is_examples(source.path)) fail_usage(source.path, " has examples, want it alone and not in a mixture");
  std::vector<OpenedSource> sources;
  for (const MixtureSource& source : run.mixture) sources.push_back(open_source({source.path}));
  if (sources.empty()) sources.push_back(open_source(run.texts));
  const bool apart = run.data.documents == Documents::apart, mixed = !run.mixture.empty();
  for (const OpenedSource& source : sources)
    if (apart && !source.prepared)
      fail_usage("data.documents: 'apart' needs documents, want prepared data (motet data prepare)");

  TextData data{.name = {}, .tokenizer = tokenizer_for(sources, run, std::move(tokenizer)), .documents_apart = apart};
  std::vector<Tokens> train, validation;
  uint64_t begin = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const OpenedSource& source = sources[i];
    const Halves own = halves_of(source, *data.tokenizer, run.data.validation);
    check_length(source.name, own, run.train.context);
    train.push_back(own.train), validation.push_back(own.validation);
    const nlohmann::json hashes =
        source.prepared ? hashes_of(*source.prepared) : nlohmann::json{{"text", hash_text(hash64(source.corpus.text))}};
    for (const auto& hash : hashes.items())
      data.hashes[mixed ? run.mixture[i].path + ": " + hash.key() : hash.key()] = hash.value();
    data.name += (i > 0 ? " + " : "") + source.name;
    if (mixed) data.parts.push_back({source.name, {begin, own.train->size(), run.mixture[i].weight}});
    begin += own.train->size();
  }
  data.train = mixed ? std::make_shared<JoinedTokens>(train) : train[0];
  data.validation = mixed ? std::make_shared<JoinedTokens>(validation) : validation[0];
  data.token_bytes = token_byte_counts(*data.tokenizer);
  return data;
}

TokenTensors as_tensors(const Batch& batch, at::Device device) {
  const auto tensor = [&](const std::vector<int64_t>& values) {
    return moved(std::span(values), {batch.rows, batch.columns}, device);
  };
  TokenTensors out{tensor(batch.inputs), tensor(batch.targets),
                   batch.documents.empty() ? Tensor() : tensor(batch.documents)};
  if (!batch.starts.empty()) out.starts = moved(std::span(batch.starts), {batch.rows, 1}, device);
  if (!batch.leaves_out) return out;
  std::vector<int64_t> asked;
  for (size_t i = 0; i < batch.targets.size(); ++i)
    if (batch.targets[i] != kLeftOut) asked.push_back(static_cast<int64_t>(i));
  out.asked = moved(std::span(std::as_const(asked)), {static_cast<int64_t>(asked.size())}, device);
  return out;
}

}  // namespace motet
