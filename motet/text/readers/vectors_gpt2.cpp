#include "motet/core/error.h"
#include "motet/text/pipeline/pipeline.h"
#include "motet/text/readers/vectors.h"
#include "motet/text/readers/vectors_kinds.h"

namespace motet {
namespace {

using nlohmann::json;

json split(const char* pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

// One row for each way of cutting; the names are those of tokenizer.ggml.pre.
struct Pre {
  std::vector<std::string> names;
  std::vector<const char*> patterns;
  bool ignore_merges = false;
  bool add_bos = false;  // where the file says nothing of it
};

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<Pre>& pres() {
  static const std::vector<Pre> all = {
      {{"default", ""},
       {R"([\p{P}\$\+<=>\^~\|]+)", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
        R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "mpt", "olmo", "jais", "gigachat", "roberta-bpe"}, {kGpt2Pattern}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {kLlama3},
       true,
       true},
      {{"dbrx", "smaug-bpe"}, {kLlama3}, true},
      {{"qwen2", "stablelm2", "deepseek-r1-qwen", "hunyuan", "megrez"},
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}, {R"(\p{N})", kGpt2Pattern}},
      {{"gpt-4o", "llama4"},
       {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}};
  return all;
}

const Pre& find_pre(const std::string& name, const std::string& where) {
  std::vector<std::string> known;
  for (const Pre& pre : pres()) {
    for (const std::string& own : pre.names) {
      if (own == name) return pre;
      if (!own.empty()) known.push_back(own);
    }
  }
  fail(where, ": ", unknown_name("pre-tokenizer", name, known));
}

}  // namespace

bool adds_bos(const std::string& pre, const std::string& where) { return find_pre(pre, where).add_bos; }

std::unique_ptr<Tokenizer> gpt2_from_vectors(const TokenizerVectors& vectors, const std::string& where) {
  const Pre& pre = find_pre(vectors.pre, where);
  json vocabulary = json::object(), added = json::array(), steps = json::array();
  for (size_t id = 0; id < vectors.tokens.size(); ++id) {
    const std::string& token = vectors.tokens[id];
    const int32_t type = vectors.types.empty() ? TokenizerVectors::normal : vectors.types[id];
    if (token.empty()) continue;
    if (vocabulary.contains(token)) fail(where, ": the token ", quote(token), " is there twice");
    vocabulary[token] = id;
    if (type != TokenizerVectors::control && type != TokenizerVectors::user_defined) continue;
    added.push_back({{"id", id},
                     {"content", token},
                     {"special", type == TokenizerVectors::control},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
  }
  for (const char* pattern : pre.patterns) steps.push_back(split(pattern));
  steps.push_back(byte_level(false));
  return read_pipeline({{"version", "1.0"},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"added_tokens", added},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
                        {"post_processor", post_processor_of(vectors, where)},
                        {"decoder", byte_level(true)},
                        {"model",
                         {{"type", "BPE"},
                          {"dropout", nullptr},
                          {"unk_token", nullptr},
                          {"ignore_merges", pre.ignore_merges},
                          {"vocab", vocabulary},
                          {"merges", vectors.merges}}}},
                       where);
}

}  // namespace motet
