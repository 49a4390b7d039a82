#include "motet/text/pipeline/pre_tokenizer.h"

#include "motet/core/error.h"
#include "motet/text/pipeline/splitting.h"
#include "motet/text/readers/json_fields.h"
#include "motet/text/regex/regex.h"

namespace motet {

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using nlohmann::json;

constexpr int kDeepest = 16;

// At a regular expression or a literal.
class Split : public PreTokenizer {
 public:
  Split(std::shared_ptr<const Regex> regex, std::string literal, SplitBehavior behavior, bool invert)
      : regex_(std::move(regex)), literal_(std::move(literal)), behavior_(behavior), invert_(invert) {}

  void split(const TextPiece& piece, PieceSink& out) const override {
    Splitter splitter(piece, behavior_, invert_, out);
    if (regex_) {
      RegexSearch search(*regex_, piece.text);
      while (const auto found = search.next()) splitter.match(found->begin, found->end);
    } else if (!literal_.empty()) {
      const std::string_view text = piece.text;
      for (size_t at = text.find(literal_); at != text.npos; at = text.find(literal_, at + literal_.size())) {
        splitter.match(at, at + literal_.size());
      }
    }
    splitter.finish();
  }

 private:
  std::shared_ptr<const Regex> regex_;
  std::string literal_;
  SplitBehavior behavior_;
  bool invert_;
};

// At each character of a kind.
class SplitCharacters : public PreTokenizer {
 public:
  SplitCharacters(bool (*kind)(char32_t), SplitBehavior behavior) : kind_(kind), behavior_(behavior) {}

  void split(const TextPiece& piece, PieceSink& out) const override {
    Splitter splitter(piece, behavior_, false, out);
    for (size_t at = 0; at < piece.text.size();) {
      const CodePoint c = code_point(piece.text, at);
      if (kind_(c.value)) splitter.match(at, at + c.size);
      at += c.size;
    }
    splitter.finish();
  }

 private:
  bool (*kind_)(char32_t);
  SplitBehavior behavior_;
};

// A piece with something before it, which belongs to its first character.
void with_prefix(const TextPiece& piece, const std::string& prefix, const PreTokenizer* next, PieceSink& out) {
  const std::string text = prefix + std::string(piece.text);
  std::vector<TextSpan> spans;
  if (piece.origin) {
    spans.assign(prefix.size(), piece.origin[0]);
    spans.insert(spans.end(), piece.origin, piece.origin + piece.text.size());
  }
  const TextPiece longer{text, piece.origin ? spans.data() : nullptr, piece.first};
  next ? next->split(longer, out) : out.piece(longer);
}

class PrefixSpace : public PreTokenizer {
 public:
  void split(const TextPiece& piece, PieceSink& out) const override {
    piece.text.starts_with(' ') ? out.piece(piece) : with_prefix(piece, " ", nullptr, out);
  }
};

// Each byte becomes its printable stand-in; only where another step follows.
class MapBytes : public PreTokenizer {
 public:
  void split(const TextPiece& piece, PieceSink& out) const override {
    std::string text;
    std::vector<TextSpan> spans;
    for (size_t i = 0; i < piece.text.size(); ++i) {
      const std::string& character = byte_character(static_cast<unsigned char>(piece.text[i]));
      text += character;
      if (piece.origin) spans.insert(spans.end(), character.size(), piece.origin[i]);
    }
    out.piece({text, piece.origin ? spans.data() : nullptr, piece.first});
  }
};

enum class Prefix { always, first, never };

class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string sign, Prefix prefix, bool cut) : sign_(std::move(sign)), prefix_(prefix), cut_(cut) {}

  void split(const TextPiece& piece, PieceSink& out) const override {
    std::string text;
    std::vector<TextSpan> spans;
    const auto add = [&](std::string_view bytes, size_t at, bool copy) {
      text += bytes;
      if (!piece.origin) return;
      for (size_t i = 0; i < bytes.size(); ++i) spans.push_back(piece.origin[copy ? at + i : at]);
    };
    const bool wanted = prefix_ == Prefix::always || (prefix_ == Prefix::first && piece.first);
    if (wanted && !piece.text.starts_with(' ') && !piece.text.starts_with(sign_)) add(sign_, 0, false);
    for (size_t at = 0; at < piece.text.size(); ++at) {
      const bool space = piece.text[at] == ' ';
      add(space ? std::string_view(sign_) : piece.text.substr(at, 1), at, !space);
    }
    const TextPiece changed{text, piece.origin ? spans.data() : nullptr, piece.first};
    if (!cut_) return out.piece(changed);
    Splitter splitter(changed, SplitBehavior::merged_with_next, false, out);
    for (size_t at = text.find(sign_); at != text.npos; at = text.find(sign_, at + sign_.size())) {
      splitter.match(at, at + sign_.size());
    }
    splitter.finish();
  }

 private:
  std::string sign_;
  Prefix prefix_;
  bool cut_;
};

std::shared_ptr<const PreTokenizer> read_metaspace(const json& json, const std::string& where) {
  const std::string sign = string_field(json, "replacement", "\xE2\x96\x81", where);
  if (sign.empty() || code_point(sign, 0).size != sign.size())
    fail(where, ": replacement is ", quote(sign), ", want one character");
  const std::string scheme = string_field(json, "prepend_scheme", "", where);
  Prefix prefix = bool_field(json, "add_prefix_space", true, where) ? Prefix::always : Prefix::never;
  if (scheme == "first") {
    prefix = Prefix::first;
  } else if (scheme == "always") {
    prefix = Prefix::always;
  } else if (scheme == "never") {
    prefix = Prefix::never;
  } else if (!scheme.empty()) {
    fail(where, ": ", unknown_name("prepend_scheme", scheme, {"always", "first", "never"}));
  }
  return std::make_shared<Metaspace>(sign, prefix, bool_field(json, "split", true, where));
}

std::shared_ptr<const PreTokenizer> read_split(const json& json, const std::string& where) {
  const SplitBehavior behavior = split_behavior(string_field(json, "behavior", "", where), where);
  const bool invert = bool_field(json, "invert", false, where);
  if (json.contains("pattern") && json["pattern"].is_object()) {
    const auto& pattern = json["pattern"];
    const std::string regex = string_field(pattern, "Regex", "", where);
    const std::string literal = string_field(pattern, "String", "", where);
    if (!regex.empty()) {
      return std::make_shared<Split>(std::make_shared<const Regex>(regex, where), "", behavior, invert);
    }
    if (!literal.empty()) return std::make_shared<Split>(nullptr, literal, behavior, invert);
  }
  fail(where, ": the pre-tokenizer 'Split' has no pattern {\"String\": ..} or {\"Regex\": ..}");
}

std::shared_ptr<const PreTokenizer> matches(const char* pattern, SplitBehavior behavior, bool invert) {
  return std::make_shared<Split>(std::make_shared<const Regex>(pattern), "", behavior, invert);
}

void read_into(PreTokenizers& out, const json& json, const std::string& where, int depth) {
  const std::string type = type_field(json, where);
  if (type == "Sequence" && depth < kDeepest) {
    for (const auto& inner : array_field(json, "pretokenizers", where)) read_into(out, inner, where, depth + 1);
    return;
  }
  if (out.bytes) {  // this step sees the stand-ins of the bytes
    out.steps.push_back(std::make_shared<MapBytes>());
    out.bytes = false;
  }
  auto& steps = out.steps;
  if (type == "ByteLevel") {
    if (bool_field(json, "add_prefix_space", true, where)) steps.push_back(std::make_shared<PrefixSpace>());
    if (bool_field(json, "use_regex", true, where))
      steps.push_back(matches(kGpt2Pattern, SplitBehavior::isolated, false));
    out.bytes = true;
  } else if (type == "Split") {
    steps.push_back(read_split(json, where));
  } else if (type == "Digits") {
    const bool each = bool_field(json, "individual_digits", false, where);
    steps.push_back(
        std::make_shared<SplitCharacters>(is_numeric, each ? SplitBehavior::isolated : SplitBehavior::contiguous));
  } else if (type == "Metaspace") {
    steps.push_back(read_metaspace(json, where));
  } else if (type == "Whitespace") {  // \w with the joiners, as the reference's other engine has it
    steps.push_back(matches(R"([\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+)", SplitBehavior::removed, true));
  } else if (type == "WhitespaceSplit") {
    steps.push_back(std::make_shared<SplitCharacters>(is_white_space, SplitBehavior::removed));
  } else if (type == "Punctuation") {
    const std::string behavior = string_field(json, "behavior", "Isolated", where);
    steps.push_back(std::make_shared<SplitCharacters>(is_old_punctuation, split_behavior(behavior, where)));
  } else {
    unsupported(
        where, "pre-tokenizer", type,
        {"ByteLevel", "Split", "Digits", "Metaspace", "Whitespace", "WhitespaceSplit", "Punctuation", "Sequence"});
  }
}

// Gives each piece to the steps that remain.
class Chain : public PieceSink {
 public:
  Chain(const PreTokenizers& all, size_t next, PieceSink& out) : all_(all), next_(next), out_(out) {}
  void piece(const TextPiece& piece) override {
    if (piece.text.empty()) return;
    if (next_ == all_.steps.size()) return out_.piece(piece);
    Chain rest(all_, next_ + 1, out_);
    all_.steps[next_]->split(piece, rest);
  }

 private:
  const PreTokenizers& all_;
  size_t next_;
  PieceSink& out_;
};

}  // namespace

PreTokenizers read_pre_tokenizers(const json& json, const std::string& where) {
  PreTokenizers out;
  if (!json.is_null()) read_into(out, json, where + ": pre_tokenizer", 0);
  if (out.steps.size() > 64) fail(where, ": ", out.steps.size(), " pre-tokenizers, want at most 64");
  return out;
}

void pre_tokenize(const PreTokenizers& steps, const TextPiece& text, PieceSink& out) {
  Chain(steps, 0, out).piece(text);
}

}  // namespace motet
