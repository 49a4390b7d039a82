#include "motet/text/pipeline/decoder.h"

#include <cctype>

#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/text/pipeline/pre_tokenizer.h"
#include "motet/text/pipeline/unicode.h"
#include "motet/text/readers/json_fields.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr const char* kReplacement = "\xEF\xBF\xBD";
constexpr int kDeepest = 16;

class ByteLevel : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string all, bytes;
    for (const std::string& token : tokens) all += bytes_of_characters(token, bytes) ? bytes : token;
    tokens.assign(1, lossy_text(std::move(all)));
  }
};

void replace_all(std::string& token, const std::string& pattern, const std::string& content) {
  for (size_t at = token.find(pattern); at != token.npos; at = token.find(pattern, at + content.size())) {
    token.replace(at, pattern.size(), content);
  }
}

class Replace : public DecoderStep {
 public:
  Replace(std::string pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) replace_all(token, pattern_, content_);
  }

 private:
  std::string pattern_, content_;
};

// Tokens of bytes that follow each other become their text when they are UTF-8, else U+FFFD each.
class ByteFallback : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (utf8_invalid_at(bytes) == bytes.npos) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), kReplacement);
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      const int byte = byte_of_token(token);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }
};

class Fuse : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens.assign(1, std::move(all));
  }
};

class Strip : public DecoderStep {
 public:
  Strip(std::string content, int64_t start, int64_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view left = token;
      for (int64_t i = 0; i < start_ && left.starts_with(content_); ++i) left.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && left.ends_with(content_); ++i) left.remove_suffix(content_.size());
      token = std::string(left);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class Metaspace : public DecoderStep {
 public:
  Metaspace(std::string sign, bool prefix) : sign_(std::move(sign)), prefix_(prefix) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], sign_, i == 0 && prefix_ ? "" : " ");
  }

 private:
  std::string sign_;
  bool prefix_;
};

void read_into(Decoders& out, const json& json, const std::string& where, int depth) {
  const std::string type = type_field(json, where);
  if (type == "Sequence" && depth < kDeepest) {
    for (const auto& inner : array_field(json, "decoders", where)) read_into(out, inner, where, depth + 1);
    return;
  }
  if (type == "ByteLevel") {
    out.bytes = out.steps.empty();
    out.steps.push_back(std::make_shared<ByteLevel>());
    return;
  }
  if (type == "Replace") {
    const auto& pattern = json.contains("pattern") ? json["pattern"] : json;
    const std::string literal = string_field(pattern, "String", "", where);
    if (literal.empty()) fail(where, ": the decoder 'Replace' has no pattern {\"String\": ..}");
    out.steps.push_back(std::make_shared<Replace>(literal, string_field(json, "content", "", where)));
  } else if (type == "ByteFallback") {
    out.steps.push_back(std::make_shared<ByteFallback>());
  } else if (type == "Fuse") {
    out.steps.push_back(std::make_shared<Fuse>());
  } else if (type == "Strip") {
    const std::string content = string_field(json, "content", " ", where);
    if (content.empty()) fail(where, ": the decoder 'Strip' has an empty content");
    out.steps.push_back(std::make_shared<Strip>(content, integer_field(json, "start", 0, where),
                                                integer_field(json, "stop", 0, where)));
  } else if (type == "Metaspace") {
    const std::string sign = string_field(json, "replacement", "\xE2\x96\x81", where);
    if (sign.empty()) fail(where, ": the decoder 'Metaspace' has an empty replacement");
    const std::string fallback = bool_field(json, "add_prefix_space", true, where) ? "always" : "never";
    const bool prefix = string_field(json, "prepend_scheme", fallback, where) != "never";
    out.steps.push_back(std::make_shared<Metaspace>(sign, prefix));
  } else {
    unsupported(where, "decoder", type,
                {"ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", "Sequence"});
  }
  out.bytes = false;
}

}  // namespace

Decoders read_decoders(const json& json, const std::string& where) {
  Decoders out;
  if (json.is_null()) {
    out.spaces = true;
  } else {
    read_into(out, json, where + ": decoder", 0);
  }
  return out;
}

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    if (!std::isxdigit(static_cast<unsigned char>(c))) return -1;
    value = value * 16 + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
  }
  return value;
}

std::string lossy_text(std::string bytes) {
  std::string storage;
  const std::string_view valid = valid_utf8(bytes, storage);
  return valid.data() == bytes.data() ? std::move(bytes) : std::move(storage);
}

}  // namespace motet
