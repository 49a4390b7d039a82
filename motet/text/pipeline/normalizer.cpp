#include "motet/text/pipeline/normalizer.h"

#include "motet/core/error.h"
#include "motet/text/pipeline/normal_form.h"
#include "motet/text/readers/json_fields.h"
#include "motet/text/regex/regex.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr int kDeepest = 16;
constexpr std::string_view kSpaceSign = "\xE2\x96\x81";

class Form : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  void apply(AlignedText& text) const override { to_normal_form(text, form_); }

 private:
  NormalForm form_;
};

class Lowercase : public Normalizer {
 public:
  void apply(AlignedText& text) const override {
    TextRewriter rewriter(text.text(), text.origin(), text.begin());
    std::string lower;
    while (rewriter.at() < text.text().size()) {
      lower.clear();
      append_lowercase(lower, code_point(text.text(), rewriter.at()).value);
      const size_t first = code_point(lower, 0).size;
      rewriter.put(std::string_view(lower).substr(0, first), 0);
      if (first < lower.size()) rewriter.put(std::string_view(lower).substr(first), 1);
    }
    text.replace(rewriter.take_text(), rewriter.take_spans());
  }
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(AlignedText& text) const override {
    if (text.text().empty() || prefix_.empty()) return;
    std::string out = prefix_ + std::string(text.text());
    std::vector<TextSpan> spans;
    if (text.tracked()) {
      spans.assign(prefix_.size(), text.origin()[0]);
      spans.insert(spans.end(), text.origin(), text.origin() + text.text().size());
    }
    text.replace(std::move(out), std::move(spans));
  }

 private:
  std::string prefix_;
};

// Each match becomes `content`, which belongs to the last character of the match.
class Replace : public Normalizer {
 public:
  Replace(std::string literal, std::shared_ptr<const Regex> regex, std::string content)
      : literal_(std::move(literal)), regex_(std::move(regex)), content_(std::move(content)) {}

  void apply(AlignedText& text) const override {
    const std::string_view from = text.text();
    TextRewriter rewriter(from, text.origin(), text.begin());
    bool changed = false;
    const auto replace = [&](size_t begin, size_t end) {
      changed = true;
      rewriter.keep(begin);
      while (rewriter.at() < end) rewriter.skip();
      rewriter.put(content_, 1);
    };
    if (regex_) {
      RegexSearch search(*regex_, from);
      while (const auto found = search.next()) replace(found->begin, found->end);
    } else if (!literal_.empty()) {
      for (size_t at = from.find(literal_); at != from.npos; at = from.find(literal_, at + literal_.size())) {
        replace(at, at + literal_.size());
      }
    }
    if (!changed) return;
    rewriter.keep(from.size());
    text.replace(rewriter.take_text(), rewriter.take_spans());
  }

 private:
  std::string literal_;
  std::shared_ptr<const Regex> regex_;
  std::string content_;
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(AlignedText& text) const override {
    const std::string_view from = text.text();
    size_t begin = 0, end = from.size();
    while (left_ && begin < end && is_white_space(code_point(from, begin).value)) begin += code_point(from, begin).size;
    while (right_ && end > begin && is_white_space(code_point(from, character_before(from, end)).value)) {
      end = character_before(from, end);
    }
    if (begin == 0 && end == from.size()) return;
    std::vector<TextSpan> spans;
    if (text.tracked()) spans.assign(text.origin() + begin, text.origin() + end);
    text.replace(std::string(from.substr(begin, end - begin)), std::move(spans));
  }

 private:
  bool left_, right_;
};

class CollapseSpaces : public Normalizer {
 public:
  void apply(AlignedText& text) const override {
    const std::string_view from = text.text();
    std::string out;
    std::vector<TextSpan> spans;
    size_t end = from.size();
    for (bool space = true; space;) {
      const std::string_view kept = from.substr(0, end);
      space = kept.ends_with(' ') || kept.ends_with(kSpaceSign);
      if (space) end -= kept.ends_with(' ') ? 1 : kSpaceSign.size();
    }
    for (size_t at = 0; at < end; ++at) {
      if (from[at] == ' ' && (out.empty() || out.back() == ' ')) {
        if (text.tracked() && !out.empty()) spans.back().end = text.origin()[at].end;  // one space stands for all
        continue;
      }
      out += from[at];
      if (text.tracked()) spans.push_back(text.origin()[at]);
    }
    text.replace(std::move(out), std::move(spans));
  }
};

std::shared_ptr<const Normalizer> read_replace(const json& json, const std::string& where) {
  const std::string content = string_field(json, "content", "", where);
  if (json.contains("pattern") && json["pattern"].is_object()) {
    const auto& pattern = json["pattern"];
    const std::string literal = string_field(pattern, "String", "", where);
    const std::string regex = string_field(pattern, "Regex", "", where);
    if (!regex.empty()) {
      return std::make_shared<Replace>("", std::make_shared<const Regex>(regex, where), content);
    }
    if (!literal.empty()) return std::make_shared<Replace>(literal, nullptr, content);
  }
  fail(where, ": the normalizer 'Replace' has no pattern {\"String\": ..} or {\"Regex\": ..}");
}

void read_into(Normalizers& out, const json& json, const std::string& where, int depth) {
  const std::string type = type_field(json, where);
  if (type == "Sequence" && depth < kDeepest) {
    for (const auto& inner : array_field(json, "normalizers", where)) read_into(out, inner, where, depth + 1);
  } else if (type == "NFC") {
    out.push_back(std::make_shared<Form>(NormalForm::nfc));
  } else if (type == "NFD") {
    out.push_back(std::make_shared<Form>(NormalForm::nfd));
  } else if (type == "NFKC") {
    out.push_back(std::make_shared<Form>(NormalForm::nfkc));
  } else if (type == "NFKD") {
    out.push_back(std::make_shared<Form>(NormalForm::nfkd));
  } else if (type == "Lowercase") {
    out.push_back(std::make_shared<Lowercase>());
  } else if (type == "Prepend") {
    out.push_back(std::make_shared<Prepend>(string_field(json, "prepend", "", where)));
  } else if (type == "Replace") {
    out.push_back(read_replace(json, where));
  } else if (type == "Strip") {
    out.push_back(std::make_shared<Strip>(bool_field(json, "strip_left", true, where),
                                          bool_field(json, "strip_right", true, where)));
  } else {
    unsupported(where, "normalizer", type,
                {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Prepend", "Replace", "Strip", "Sequence"});
  }
}

}  // namespace

Normalizers read_normalizers(const json& json, const std::string& where) {
  Normalizers out;
  if (!json.is_null()) read_into(out, json, where + ": normalizer", 0);
  return out;
}

std::string normalized(const Normalizers& normalizers, std::string_view text) {
  AlignedText aligned(text, false);
  for (const auto& normalizer : normalizers) normalizer->apply(aligned);
  return std::string(aligned.text());
}

std::shared_ptr<const Normalizer> collapse_spaces() { return std::make_shared<CollapseSpaces>(); }

}  // namespace motet
