#include "motet/http/chunks.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/http/request.h"

namespace motet {
namespace {

constexpr int64_t kOverhead = 8;  // bytes of lines for each of the body; chunks of one byte need 5

bool is_text(char c) { return c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F); }

}  // namespace

size_t ChunkDecoder::feed(std::string_view bytes, std::string& body) {
  size_t used = 0;
  while (used < bytes.size() && !done() && !status_) {
    if (part_ == Part::data) {
      const size_t count = std::min(bytes.size() - used, static_cast<size_t>(left_));
      body.append(bytes.substr(used, count));
      used += count;
      left_ -= static_cast<int64_t>(count);
      if (left_ == 0) part_ = Part::data_cr;
    } else {
      take(bytes[used++], body.size());
    }
  }
  return used;
}

/// A byte that is no data.
void ChunkDecoder::take(char c, size_t body_bytes) {
  count_line(body_bytes);
  if (status_) return;
  if (part_ >= Part::trailer) return take_trailer(c);
  if (part_ <= Part::size_end) return take_size(c, body_bytes);
  if (c != (part_ == Part::data_cr ? '\r' : '\n')) return fail_with(400, "a chunk of the body is longer than its size");
  if (part_ == Part::data_lf) digits_ = line_bytes_ = 0;
  part_ = part_ == Part::data_cr ? Part::data_lf : Part::size;
}

void ChunkDecoder::take_size(char c, size_t body_bytes) {
  const int digit = hex_digit(c);
  if (part_ == Part::size && digit >= 0) {
    ++digits_;
    left_ = left_ * 16 + digit;  // cannot wrap: a body has at most 2^30 bytes
    if (left_ > limits_.body_bytes - static_cast<int64_t>(body_bytes))
      fail_with(413, text("the body is longer than ", limits_.body_bytes, " bytes"));
  } else if (part_ == Part::size_end && c == '\n') {
    part_ = left_ ? Part::data : Part::trailer;
    line_bytes_ = 0;
  } else if (c == '\r' && digits_ && (part_ == Part::size || part_ == Part::extension)) {
    part_ = Part::size_end;
  } else if (c == ';' && digits_ && part_ <= Part::before_extension) {
    part_ = Part::extension;
  } else if ((c == ' ' || c == '\t') && digits_ && part_ <= Part::before_extension) {
    part_ = Part::before_extension;
  } else if (part_ != Part::extension || !is_text(c)) {
    fail_with(400, "the size of a chunk of the body is malformed");
  }
}

void ChunkDecoder::take_trailer(char c) {
  switch (part_) {
    case Part::trailer:
      if (c == '\r') {
        part_ = Part::last_lf;
        return;
      }
      if (++trailers_ > limits_.header_fields)
        return fail_with(431, text("the trailer has more than ", limits_.header_fields, " fields"));
      if (!is_token(c)) break;
      part_ = Part::name;
      return;
    case Part::name:
      if (c == ':') part_ = Part::value;
      if (c == ':' || is_token(c)) return;
      break;
    case Part::value:
      if (c == '\r') part_ = Part::value_end;
      if (c == '\r' || is_text(c)) return;
      break;
    default:  // a line's end
      if (c != '\n') break;
      part_ = part_ == Part::last_lf ? Part::done : Part::trailer;
      return;
  }
  fail_with(400, "the trailer of the body is malformed");
}

void ChunkDecoder::count_line(size_t body_bytes) {
  ++lines_bytes_;
  if (++line_bytes_ > limits_.header_bytes)  // a trailer counts as one line
    return fail_with(431, text("a line or the trailer of the body is longer than ", limits_.header_bytes, " bytes"));
  if (lines_bytes_ > 2 * limits_.header_bytes + kOverhead * static_cast<int64_t>(body_bytes))
    fail_with(400, "the chunks of the body hold next to nothing");
}

void ChunkDecoder::fail_with(int status, std::string message) {
  status_ = status;
  message_ = std::move(message);
}

}  // namespace motet
