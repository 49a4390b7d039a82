// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace motet {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of a text. CharTokenizer throws Error for a character outside of its vocabulary and for invalid UTF-8, with
  // the offset in bytes.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;

  // The bytes that the ids stand for, which need not be whole UTF-8 characters. Throws Error for an id outside of the
  // vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  virtual int64_t vocabulary_size() const = 0;

  // "bytes" or "chars".
  virtual std::string name() const = 0;

  // The content of tokenizer.json in the layout of Hugging Face's tokenizers, which reads it.
  virtual nlohmann::json to_json() const = 0;
};

// 256 ids, the bytes themselves; takes anything.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocabulary_size() const override { return 256; }
  std::string name() const override { return "bytes"; }
  nlohmann::json to_json() const override;
};

// One id for each distinct UTF-8 character, in the order of their bytes.
class CharTokenizer : public Tokenizer {
 public:
  // The characters of a text. Throws Error when it is empty or no UTF-8.
  explicit CharTokenizer(std::string_view text);

  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocabulary_size() const override { return static_cast<int64_t>(characters_.size()); }
  std::string name() const override { return "chars"; }
  nlohmann::json to_json() const override;

 private:
  std::vector<std::string> characters_;  // sorted
};

// "bytes" or "chars" (of the text). Throws UsageError for another name, Error as CharTokenizer does.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::string_view text);

// What to_json() wrote. Throws Error for a tokenizer of another kind, ids that are not 0 .. n-1, entries that are not
// one character each; `where` begins each message.
std::unique_ptr<Tokenizer> tokenizer_from_json(const nlohmann::json& json, const std::string& where = "tokenizer.json");

}  // namespace motet
