#include <bit>
#include <cstring>
#include <optional>

#include "motet/core/error.h"
#include "motet/text/readers/vectors.h"

namespace motet {
namespace {

// The fields of a protocol-buffer message, one by one.
class Message {
 public:
  Message(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  struct Field {
    uint64_t number, value;  // value: of a varint, or the bits of a fixed one
    std::string_view bytes;  // of a string or message
  };

  std::optional<Field> next() {
    if (at_ == bytes_.size()) return std::nullopt;
    const uint64_t tag = varint();
    Field field{tag >> 3, 0, {}};
    switch (tag & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2: {
        const uint64_t size = varint();
        if (size > bytes_.size() - at_) stop();
        field.bytes = bytes_.substr(at_, size);
        at_ += size;
        break;
      }
      case 5:
        field.value = fixed(4);
        break;
      default:
        stop();
    }
    return field;
  }

 private:
  [[noreturn]] void stop() {
    fail(where_, ": no SentencePiece model: broken or cut at byte ", at_, " of ", bytes_.size());
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) stop();
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
    stop();
  }

  uint64_t fixed(size_t size) {
    if (bytes_.size() - at_ < size) stop();
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + at_, size);
    at_ += size;
    return value;
  }

  std::string_view bytes_;
  const std::string& where_;
  size_t at_ = 0;
};

}  // namespace

TokenizerVectors read_sentence_piece(std::string_view bytes, const std::string& where) {
  TokenizerVectors out{.kind = "llama", .collapse_spaces = true, .parse_control = false};
  uint64_t model_type = 1;
  bool suffix = false, escape = true;
  std::string normalizer;
  Message model(bytes, where);
  while (const auto field = model.next()) {
    Message inner(field->bytes, where);
    if (field->number == 1) {
      std::string piece;
      float score = 0;
      int32_t type = TokenizerVectors::normal;
      while (const auto part = inner.next()) {
        if (part->number == 1) piece = part->bytes;
        if (part->number == 2) score = std::bit_cast<float>(static_cast<uint32_t>(part->value));
        if (part->number == 3) type = static_cast<int32_t>(part->value);
      }
      out.tokens.push_back(piece);
      out.scores.push_back(score);
      out.types.push_back(type);
    } else if (field->number == 2) {
      while (const auto part = inner.next()) {
        if (part->number == 3) model_type = part->value;
        if (part->number == 24) suffix = part->value != 0;
        if (part->number == 44) out.unknown_text = part->bytes;
      }
    } else if (field->number == 3) {
      while (const auto part = inner.next()) {
        if (part->number == 1) normalizer = part->bytes;
        if (part->number == 2 && !part->bytes.empty()) {
          fail(where, ": the normalizer ", quote(normalizer),
               " with a character map is not supported; known: identity");
        }
        if (part->number == 3) out.add_space_prefix = part->value != 0;
        if (part->number == 4) out.collapse_spaces = part->value != 0;
        if (part->number == 5) escape = part->value != 0;
      }
    }
  }
  if (out.tokens.empty()) fail(where, ": no SentencePiece model: it holds no pieces");
  if (model_type != 2) fail(where, ": SentencePiece's model type ", model_type, " is not supported; known: 2 (BPE)");
  if (suffix) fail(where, ": treat_whitespace_as_suffix is not supported");
  if (!escape) fail(where, ": escape_whitespaces = false is not supported");
  return out;
}

TokenizerVectors read_llama2c(std::string_view bytes, const std::string& where) {
  TokenizerVectors out{.kind = "llama", .bos = 1};
  size_t at = 4;  // behind the length of the longest token
  const auto number = [&] {
    if (at > bytes.size() || bytes.size() - at < 4) fail(where, ": cut at byte ", bytes.size());
    uint32_t value;
    std::memcpy(&value, bytes.data() + at, 4);
    at += 4;
    return value;
  };
  if (bytes.size() < 4) fail(where, ": ", bytes.size(), " bytes, want a tokenizer of llama2.c");
  while (at < bytes.size()) {
    const float score = std::bit_cast<float>(number());
    const uint32_t size = number();
    if (size > bytes.size() - at)
      fail(where, ": token ", out.tokens.size(), " of ", size, " bytes goes beyond the end of the file");
    const size_t id = out.tokens.size();
    std::string token;
    for (const char c : bytes.substr(at, size))
      token += c == ' ' && id > 258 ? std::string("\xE2\x96\x81") : std::string(1, c);
    at += size;
    // The ids of SentencePiece: unknown, begin, end, 256 bytes, pieces.
    if (id < 3) token = std::vector<std::string>{"<unk>", "<s>", "</s>"}[id];
    out.tokens.push_back(token);
    out.scores.push_back(score);
    out.types.push_back(id == 0    ? TokenizerVectors::unknown
                        : id < 3   ? TokenizerVectors::control
                        : id < 259 ? TokenizerVectors::byte
                                   : TokenizerVectors::normal);
  }
  return out;
}

}  // namespace motet
