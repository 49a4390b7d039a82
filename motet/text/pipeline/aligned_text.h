// A text that normalisers change, and for each of its bytes the bytes of the original it comes from.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motet/text/pipeline/unicode.h"

namespace motet {

// Bytes begin .. end of the original text.
struct TextSpan {
  size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

// Valid UTF-8. Without tracking `origin` stays empty, and an unchanged text is not copied.
class AlignedText {
 public:
  // `text` must outlive the object. `begin` is its place in the original, of which each byte is itself.
  AlignedText(std::string_view text, bool tracked, size_t begin = 0) : view_(text), begin_(begin), tracked_(tracked) {
    if (!tracked) return;
    origin_.resize(text.size());
    for (size_t at = 0; at < text.size();) {
      const size_t size = code_point(text, at).size;
      for (size_t i = 0; i < size; ++i) origin_[at + i] = {begin + at, begin + at + size};
      at += size;
    }
  }
  AlignedText(const AlignedText&) = delete;
  AlignedText& operator=(const AlignedText&) = delete;

  std::string_view text() const { return view_; }
  const TextSpan* origin() const { return tracked_ ? origin_.data() : nullptr; }
  bool tracked() const { return tracked_; }
  size_t begin() const { return begin_; }

  void replace(std::string text, std::vector<TextSpan> origin) {
    storage_ = std::move(text);
    view_ = storage_;
    origin_ = std::move(origin);
  }

 private:
  std::string storage_;
  std::string_view view_;
  std::vector<TextSpan> origin_;
  size_t begin_;
  bool tracked_;
};

// Writes a changed text character by character, in the terms of the reference's alignments.
class TextRewriter {
 public:
  TextRewriter(std::string_view from, const TextSpan* origin, size_t begin)
      : from_(from), origin_(origin), begin_(begin) {
    out_.reserve(from.size() + from.size() / 8);
    if (origin) spans_.reserve(from.size());
  }

  // Appends `text`. change 0: it stands for the next character; -n: for the next and the n after it; 1: it is new, and
  // belongs to the character before.
  void put(std::string_view text, int change) {
    const TextSpan span = origin_ ? span_of(change > 0) : TextSpan{};
    for (int i = change; i <= 0; ++i) skip();
    out_ += text;
    if (origin_) spans_.insert(spans_.end(), text.size(), span);
  }
  void put(char32_t character, int change) {
    std::string bytes;
    append_utf8(bytes, character);
    put(bytes, change);
  }

  // Leaves out the next character.
  void skip() {
    if (at_ < from_.size()) at_ += code_point(from_, at_).size;
  }

  // Copies up to `end`.
  void keep(size_t end) {
    out_ += from_.substr(at_, end - at_);
    if (origin_) spans_.insert(spans_.end(), origin_ + at_, origin_ + end);
    at_ = end;
  }

  size_t at() const { return at_; }
  std::string take_text() { return std::move(out_); }
  std::vector<TextSpan> take_spans() { return std::move(spans_); }

 private:
  TextSpan span_of(bool inserted) const {
    if (inserted) return at_ == 0 ? TextSpan{begin_, begin_} : origin_[at_ - 1];
    return from_.empty() ? TextSpan{begin_, begin_} : origin_[std::min(at_, from_.size() - 1)];
  }

  std::string_view from_;
  const TextSpan* origin_;
  size_t begin_, at_ = 0;
  std::string out_;
  std::vector<TextSpan> spans_;
};

}  // namespace motet
