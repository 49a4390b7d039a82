#include "motet/data/manifest.h"

#include <set>

#include "motet/core/checked.h"
#include "motet/core/error.h"
#include "motet/data/hash.h"
#include "motet/formats/shards.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "motet tokens";
constexpr uint64_t kVersion = 1, kMostVocabulary = uint64_t{1} << 31;

json split_json(const SplitRecord& split) {
  json shards = json::array();
  for (const ShardRecord& shard : split.shards)
    shards.push_back({{"file", shard.file},
                      {"tokens", shard.tokens},
                      {"documents", shard.documents},
                      {"hash", hash_text(shard.hash)}});
  return {{"tokens", split.tokens},
          {"documents", split.documents},
          {"text_bytes", split.text_bytes},
          {"shards", std::move(shards)}};
}

// An object of the file whose members are asked for by name; finish() refuses those nobody asked for.
class Fields {
 public:
  Fields(const json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) fail(where_, ": is no object");
  }

  const json& member(const char* name) {
    if (!value_.contains(name)) fail(where_, ": '", name, "' is missing");
    asked_.insert(name);
    return value_[name];
  }

  bool null(const char* name) { return member(name).is_null(); }

  uint64_t count(const char* name) {
    const json& value = member(name);
    if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0))
      fail(where_, ": ", name, " is ", quote(value.dump()), ", want a whole number");
    return value.get<uint64_t>();
  }

  std::string string(const char* name) {
    const json& value = member(name);
    if (!value.is_string()) fail(where_, ": ", name, " is ", quote(value.dump()), ", want a string");
    return value.get<std::string>();
  }

  uint64_t hash(const char* name) {
    const std::string digits = string(name);
    if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != digits.npos)
      fail(where_, ": ", name, " is ", quote(digits), ", want 16 hexadecimal digits");
    return std::stoull(digits, nullptr, 16);
  }

  std::string file(const char* name) {
    const std::string path = string(name);
    if (!is_plain_file_name(path)) fail(where_, ": ", name, " is ", quote(path), ", want a plain file name");
    return path;
  }

  const json& list(const char* name) {
    const json& value = member(name);
    if (!value.is_array()) fail(where_, ": ", name, " is no list");
    return value;
  }

  void finish() const {
    for (const auto& item : value_.items())
      if (!asked_.contains(item.key())) fail(where_, ": ", quote(item.key()), " is unknown");
  }

  std::string inside(const std::string& name) const { return where_ + ": " + name; }

 private:
  const json& value_;
  std::string where_;
  std::set<std::string> asked_;
};

SplitRecord parse_split(const json& value, const std::string& where) {
  Fields fields(value, where);
  SplitRecord split{.tokens = fields.count("tokens"),
                    .documents = fields.count("documents"),
                    .text_bytes = fields.count("text_bytes"),
                    .shards = {}};
  uint64_t tokens = 0, documents = 0;
  for (const json& shard : fields.list("shards")) {
    Fields inner(shard, fields.inside(text("shard ", split.shards.size())));
    const ShardRecord record{inner.file("file"), inner.count("tokens"), inner.count("documents"), inner.hash("hash")};
    inner.finish();
    const auto token_sum = checked_add(tokens, record.tokens), document_sum = checked_add(documents, record.documents);
    if (!token_sum || !document_sum) fail(where, ": the counts of the shards are too large");
    tokens = *token_sum, documents = *document_sum;
    split.shards.push_back(record);
  }
  fields.finish();
  if (tokens != split.tokens) fail(where, ": tokens is ", split.tokens, ", and the shards have ", tokens);
  if (documents != split.documents)
    fail(where, ": documents is ", split.documents, ", and the shards have ", documents);
  return split;
}

}  // namespace

json manifest_json(const Manifest& m) {
  json inputs = json::array();
  for (const InputRecord& input : m.inputs)
    inputs.push_back({{"path", input.path}, {"bytes", input.bytes}, {"hash", hash_text(input.hash)}});
  return {
      {"format", kFormat},
      {"version", kVersion},
      {"tokenizer", {{"file", m.tokenizer_file}, {"hash", hash_text(m.tokenizer_hash)}, {"vocabulary", m.vocabulary}}},
      {"document_token", m.document_token ? json(*m.document_token) : json()},
      {"inputs", std::move(inputs)},
      {"splits", {{"train", split_json(m.train)}, {"validation", split_json(m.validation)}}}};
}

Manifest parse_manifest(const json& value, const std::string& where) {
  Fields fields(value, where);
  if (fields.string("format") != kFormat)
    fail(where, ": format is ", quote(value["format"].dump()), ", want ", kFormat);
  if (const uint64_t version = fields.count("version"); version != kVersion)
    fail(where, ": version is ", version, ", want ", kVersion);
  Manifest m;
  Fields tokenizer(fields.member("tokenizer"), fields.inside("tokenizer"));
  m.tokenizer_file = tokenizer.file("file");
  m.tokenizer_hash = tokenizer.hash("hash");
  m.vocabulary = tokenizer.count("vocabulary");
  tokenizer.finish();
  if (m.vocabulary < 1 || m.vocabulary > kMostVocabulary)
    fail(where, ": tokenizer: vocabulary is ", m.vocabulary, ", want 1 to ", kMostVocabulary);
  if (!fields.null("document_token")) {
    const uint64_t id = fields.count("document_token");
    if (id >= m.vocabulary) fail(where, ": document_token is ", id, ", outside of the vocabulary of ", m.vocabulary);
    m.document_token = static_cast<int64_t>(id);
  }
  for (const json& input : fields.list("inputs")) {
    Fields inner(input, fields.inside(text("input ", m.inputs.size())));
    m.inputs.push_back({inner.string("path"), inner.count("bytes"), inner.hash("hash")});
    inner.finish();
  }
  Fields splits(fields.member("splits"), fields.inside("splits"));
  m.train = parse_split(splits.member("train"), splits.inside("train"));
  m.validation = parse_split(splits.member("validation"), splits.inside("validation"));
  splits.finish();
  fields.finish();
  return m;
}

}  // namespace motet
