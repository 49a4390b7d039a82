// Text to token ids and back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "motet/text/pipeline/aligned_text.h"

namespace motet {

struct EncodeOptions {
  bool add_special = false;   // the tokens that the file puts around every text, such as <s>
  bool parse_special = true;  // special tokens that are written out in the text are found; else they are plain text
};

// A token and the bytes of the text it stands for.
struct TextToken {
  int32_t id;
  TextSpan span;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of a text. CharTokenizer throws Error for a character outside of its vocabulary and for invalid UTF-8, with
  // the offset in bytes.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;

  // encode(), or nothing where the ids are more than `most`: then it may stop early.
  virtual std::optional<std::vector<int32_t>> encode_at_most(std::string_view text, size_t most) const;

  // The bytes that the ids stand for, which need not be whole UTF-8 characters. Throws Error for an id outside of the
  // vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  virtual int64_t vocabulary_size() const = 0;

  // "bytes", "chars" or "bpe".
  virtual std::string name() const = 0;

  // The content of tokenizer.json in the layout of Hugging Face's tokenizers, which reads it.
  virtual nlohmann::json to_json() const = 0;

  // The ids with their places in the text.
  virtual std::vector<TextToken> tokens(std::string_view text, const EncodeOptions& options) const = 0;

  // encode() of each text, on so many threads.
  virtual std::vector<std::vector<int32_t>> encode_all(std::span<const std::string_view> texts, int threads,
                                                       const EncodeOptions& options) const;

  // The text of the ids as the reference prints it: valid UTF-8, U+FFFD for what is none.
  virtual std::string text(std::span<const int32_t> ids, bool skip_special) const;

  // The token as its file writes it.
  virtual std::string piece(int32_t id) const { return decode({&id, 1}); }
  virtual bool special(int32_t id) const { return false; }

  // The tokens that the file puts before every text, such as <s>.
  virtual std::span<const int32_t> before() const { return {}; }

  // Whether decode() of ids is decode() of each, one behind the other.
  virtual bool decodes_one_by_one() const { return true; }
};

// Puts before() before the ids of a text that a model is to continue, unless they begin with it; gives how many were
// put.
size_t put_before(const Tokenizer& tokenizer, std::vector<int32_t>& ids);

// Throws Error for an id outside of 0 .. size - 1.
void check_token_id(int32_t id, int64_t size);

// Calls work(i) for 0 .. count - 1 from so many threads, each with a state of its own from make(); the first exception
// is thrown.
void parallel_texts(size_t count, int threads, const std::function<std::function<void(size_t)>()>& make);

// 256 ids, the bytes themselves; takes anything.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override;
  std::vector<TextToken> tokens(std::string_view text, const EncodeOptions& options) const override;
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
  std::vector<TextToken> tokens(std::string_view text, const EncodeOptions& options) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocabulary_size() const override { return static_cast<int64_t>(characters_.size()); }
  std::string name() const override { return "chars"; }
  nlohmann::json to_json() const override;

 private:
  std::vector<std::string> characters_;  // sorted
};

// "bytes" or "chars" (of the text). Throws UsageError for another name, Error as CharTokenizer does.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::string_view text);

// A tokenizer.json: what ByteTokenizer and CharTokenizer wrote, and byte-pair encodings. Throws Error in one line that
// begins with `where` and names the component that is wrong or not supported.
std::unique_ptr<Tokenizer> tokenizer_from_json(const nlohmann::json& json, const std::string& where = "tokenizer.json");

}  // namespace motet
