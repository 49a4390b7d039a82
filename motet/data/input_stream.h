// Text from a file or standard input, unpacked on the way: gzip and Zstandard are told by their first bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "motet/data/hash.h"

namespace motet {

class InputStream {
 public:
  // "-" is standard input. Throws Error naming the path when it cannot be opened, or is named .gz or .zst and is none.
  // Waits for bytes end with Interrupted when another thread sets `stopped`.
  explicit InputStream(const std::string& path, const std::atomic<bool>* stopped = nullptr);
  ~InputStream();
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  // Appends some of the text that comes next; false at the end. Throws Error naming the path: not readable, packed data
  // that is damaged or ends too early; Interrupted while it waits.
  bool read(std::string& out);

  uint64_t packed_bytes() const { return packed_; }  // taken from the file so far
  uint64_t text_bytes() const { return text_; }      // given so far
  uint64_t text_hash() const { return hash_.value(); }

 private:
  class Unpacker;
  class Gzip;
  class Zstandard;
  bool fill();

  std::string path_;
  const std::atomic<bool>* stopped_;
  int descriptor_;
  std::string buffer_;  // as it is in the file
  size_t used_ = 0;     // of the buffer
  std::unique_ptr<Unpacker> unpacker_;
  uint64_t packed_ = 0, text_ = 0;
  Hash64 hash_;
};

}  // namespace motet
