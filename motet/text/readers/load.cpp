#include "motet/text/readers/load.h"

#include <filesystem>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/formats/json.h"
#include "motet/formats/json_members.h"
#include "motet/text/pipeline/pipeline.h"
#include "motet/text/readers/added_files.h"
#include "motet/text/readers/read_gguf.h"
#include "motet/text/readers/vectors.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFewPieces = 1000;

// Ids of pieces, and merges behind a line "#version": GPT-2's two files, and those of its kin in transformers.
std::unique_ptr<Tokenizer> read_gpt2(const fs::path& vocabulary_path, const fs::path& merges_path) {
  const std::string where = vocabulary_path.string();
  const nlohmann::json vocabulary = read_json(where);
  if (!vocabulary.is_object()) fail(where, ": no object of pieces and ids");
  AddedFiles added;  // OpenAI's files have none
  if (vocabulary_path.filename() == "vocab.json") added = read_added_files(vocabulary_path.parent_path());
  const TokenizerClass of = class_of_merges(added);
  TokenizerVectors vectors{.kind = "gpt2", .pre = of.pre};
  vectors.tokens.resize(vocabulary.size());
  for (const auto& [piece, id] : vocabulary.items()) {
    if (!id.is_number_integer() || id < 0 || id >= vocabulary.size() || !vectors.tokens[id.get<size_t>()].empty()) {
      fail(where, ": the id of ", quote(piece), " is ", quote(id.dump()), ", want each of 0 to ", vocabulary.size() - 1,
           " once");
    }
    vectors.tokens[id.get<size_t>()] = piece;
  }
  vectors.types.assign(vectors.tokens.size(), TokenizerVectors::normal);
  for (size_t id = 0; id < vectors.tokens.size(); ++id) {
    if (vectors.tokens[id] == "<|endoftext|>") vectors.types[id] = TokenizerVectors::control;
  }
  const std::string merges = read_file(merges_path);
  for (size_t begin = 0, line = 0; begin < merges.size(); ++line) {
    const size_t end = std::min(merges.find('\n', begin), merges.size());
    std::string_view row = std::string_view(merges).substr(begin, end - begin);
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (!row.empty() && !(line == 0 && row.starts_with("#version"))) vectors.merges.emplace_back(row);
    begin = end + 1;
  }
  set_tokens_around(vectors, added, of);
  auto tokenizer = tokenizer_from_vectors(vectors, merges_path.string());
  if (!of.normalizer.is_null()) {
    nlohmann::json value = tokenizer->to_json();
    value["normalizer"] = of.normalizer;
    tokenizer = tokenizer_from_json(value, merges_path.string());
  }
  return added.tokens.empty() ? std::move(tokenizer) : with_added(*tokenizer, added);
}

std::unique_ptr<Tokenizer> load_sentence_piece(const fs::path& path) {
  TokenizerVectors vectors = read_sentence_piece(read_file(path), path.string());
  AddedFiles added;
  if (path.filename() == "tokenizer.model") {
    added = read_added_files(path.parent_path());
    set_tokens_around(vectors, added);
  }
  return added.tokens.empty() ? tokenizer_from_vectors(vectors, path.string())
                              : sentence_piece_with_added(vectors, path.string(), added);
}

// The file beside `path` whose name has `from` replaced by `to`; empty when there is none.
fs::path sibling(const fs::path& path, const std::string& from, const std::string& to) {
  std::string name = path.filename().string();
  const size_t at = name.rfind(from);
  if (at == name.npos) return {};
  const fs::path other = path.parent_path() / name.replace(at, from.size(), to);
  std::error_code ignored;
  return fs::exists(other, ignored) ? other : fs::path();
}

// The vocabulary stays out of the tree of JSON, which would sort it; small ones, those of characters among them, go
// back.
std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& bytes, const std::string& where) {
  PieceList pieces;
  nlohmann::json value = parse_json_members(
      bytes, where, {"model", "vocab"},
      [&](std::string&& piece, nlohmann::json&& id) { pieces.emplace_back(std::move(piece), std::move(id)); });
  const bool has_model = value.is_object() && value.contains("model") && value["model"].is_object();
  if (has_model && value["model"].value("type", nlohmann::json("BPE")) == "BPE" && pieces.size() > kFewPieces)
    return read_pipeline(value, where, &pieces);
  for (auto& [piece, id] : pieces)
    if (!value["model"]["vocab"].emplace(piece, std::move(id)).second)
      fail(where, ": the name ", quote(piece), " appears twice in one object");
  return tokenizer_from_json(value, where);
}

std::unique_ptr<Tokenizer> load_json(const fs::path& path) {
  for (const auto& [vocabulary, merges] :
       {std::pair("encoder.json", "vocab.bpe"), std::pair("vocab.json", "merges.txt")}) {
    const fs::path other = sibling(path, vocabulary, merges);
    if (!other.empty()) return read_gpt2(path, other);
  }
  return read_tokenizer_json(read_file(path, kJsonBytes), path.string());
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name) {
  const fs::path path = name;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    for (const char* file : {"tokenizer.json", "tokenizer.model", "encoder.json", "vocab.json", "tokenizer.bin"}) {
      if (fs::exists(path / file, ignored)) return load_tokenizer((path / file).string());
    }
    fail("cannot read ", quote(name),
         ": the folder holds no tokenizer.json, tokenizer.model, encoder.json, vocab.json or tokenizer.bin");
  }
  if (path.extension() == ".json") return load_json(path);
  if (path.extension() == ".bpe" || path.extension() == ".txt") {
    fs::path vocabulary = sibling(path, "vocab.bpe", "encoder.json");
    if (vocabulary.empty()) vocabulary = sibling(path, "merges.txt", "vocab.json");
    if (vocabulary.empty()) fail("cannot read ", quote(name), ": its encoder.json or vocab.json is not beside it");
    return read_gpt2(vocabulary, path);
  }
  if (path.extension() == ".tiktoken") return read_tiktoken(read_file(path), name);
  if (path.extension() == ".model") return load_sentence_piece(path);
  if (path.extension() == ".bin") return tokenizer_from_vectors(read_llama2c(read_file(path), name), name);
  if (path.extension() == ".gguf") return read_gguf_tokenizer(GgufFile(name));
  fail("cannot read ", quote(name),
       " as a tokenizer: want .json, .model, .tiktoken, .bpe, .bin, .gguf or a folder with one");
}

std::unique_ptr<Tokenizer> choose_tokenizer(const std::string& name, std::string_view text) {
  std::error_code ignored;
  const bool path = name.find_first_of("/.") != name.npos || fs::exists(name, ignored);
  const bool own = name == "bytes" || name == "chars";
  return path && !own ? load_tokenizer(name) : make_tokenizer(name, text);
}

}  // namespace motet
