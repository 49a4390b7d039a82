#pragma once
#include <string>
#include <string_view>

#include "motet/http/options.h"

namespace motet {

/// A chunked body out of its bytes, however these are cut (RFC 9112, 7.1). Extensions and trailers are checked and
/// dropped. Not Beast's: that counts a size again each time an extension comes in parts, and waits for a quote beyond
/// its line.
class ChunkDecoder {
 public:
  explicit ChunkDecoder(const HttpLimits& limits) : limits_(limits) {}

  /// Appends what the bytes hold to `body` and returns how many were used: all, up to the end of the body or a mistake.
  size_t feed(std::string_view bytes, std::string& body);

  bool done() const { return part_ == Part::done; }
  /// Why not, and the status to answer; 0: nothing is wrong.
  int status() const { return status_; }
  const std::string& message() const { return message_; }

 private:
  enum class Part {
    size,
    before_extension,
    extension,
    size_end,
    data,
    data_cr,
    data_lf,
    trailer,
    name,
    value,
    value_end,
    last_lf,
    done
  };

  void take(char c, size_t body_bytes);
  void take_size(char c, size_t body_bytes);
  void take_trailer(char c);
  void count_line(size_t body_bytes);
  void fail_with(int status, std::string message);

  const HttpLimits limits_;
  Part part_ = Part::size;
  int64_t digits_ = 0, left_ = 0;  // of the present chunk
  int64_t line_bytes_ = 0, lines_bytes_ = 0, trailers_ = 0;
  int status_ = 0;
  std::string message_;
};

}  // namespace motet
