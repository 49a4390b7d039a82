#include "motet/text/readers/read_gguf.h"

#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/text/readers/vectors_kinds.h"

namespace motet {

std::unique_ptr<Tokenizer> read_gguf_tokenizer(const GgufFile& file) {
  const auto key = [](const char* name) { return std::string("tokenizer.ggml.") + name; };
  TokenizerVectors v;
  const auto kind = file.word(key("model"));
  const auto tokens = file.words(key("tokens"));
  if (!kind || !tokens) fail(file.path(), ": no tokenizer, want tokenizer.ggml.model and tokenizer.ggml.tokens");
  v.kind = *kind, v.tokens = *tokens;
  v.pre = file.word(key("pre")).value_or("");
  if (v.kind == "gpt2" && v.pre.empty())
    log_warn(file.path() +
             ": does not say how text is cut (tokenizer.ggml.pre); it is cut as llama.cpp's default does");
  v.merges = file.words(key("merges")).value_or(std::vector<std::string>());
  for (const double score : file.numbers(key("scores")).value_or(std::vector<double>()))
    v.scores.push_back(static_cast<float>(score));
  for (const int64_t type : file.integers(key("token_type")).value_or(std::vector<int64_t>()))
    v.types.push_back(static_cast<int32_t>(type));
  const auto id = [&](const char* name) {
    const int64_t given = file.integer(key(name)).value_or(-1);
    return given < static_cast<int64_t>(v.tokens.size()) ? static_cast<int32_t>(given) : -1;
  };
  const bool bos = v.kind == "llama" || (v.kind == "gpt2" && adds_bos(v.pre, file.path()));
  if (file.flag(key("add_bos_token")).value_or(bos)) v.bos = id("bos_token_id");
  if (file.flag(key("add_eos_token")).value_or(false)) v.eos = id("eos_token_id");
  v.add_space_prefix = file.flag(key("add_space_prefix")).value_or(true);
  v.collapse_spaces = file.flag(key("remove_extra_whitespaces")).value_or(false);
  return tokenizer_from_vectors(v, file.path());
}

}  // namespace motet
