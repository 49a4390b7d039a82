#include "motet/data/input_stream.h"

#include <poll.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"

namespace motet {
namespace {

constexpr size_t kRead = 1 << 18;
constexpr int kWaitMilliseconds = 100;  // until Ctrl-C is looked at again
constexpr std::string_view kGzipMagic("\x1f\x8b", 2), kZstandardMagic("\x28\xb5\x2f\xfd", 4);

}  // namespace

class InputStream::Unpacker {
 public:
  virtual ~Unpacker() = default;
  // Unpacks the front of `in`, which it shortens, behind `out`. Throws Error without the path.
  virtual void unpack(std::string_view& in, std::string& out) = 0;
  virtual bool whole() const = 0;  // nothing is missing when the file ends here
};

class InputStream::Gzip : public Unpacker {
 public:
  Gzip() {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) fail("zlib has no memory");
  }
  ~Gzip() override { inflateEnd(&stream_); }

  void unpack(std::string_view& in, std::string& out) override {
    if (whole_ && inflateReset(&stream_) != Z_OK) fail("zlib cannot begin a second part");
    whole_ = false;
    const size_t before = out.size();
    out.resize(before + kRead);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream_.avail_out = kRead;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    in.remove_prefix(in.size() - stream_.avail_in);
    out.resize(before + kRead - stream_.avail_out);
    whole_ = code == Z_STREAM_END;  // another part may follow
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) fail("the gzip data is damaged");
  }
  bool whole() const override { return whole_; }

 private:
  z_stream stream_ = {};
  bool whole_ = false;
};

class InputStream::Zstandard : public Unpacker {
 public:
  Zstandard() : stream_(ZSTD_createDStream()) {
    if (!stream_) fail("zstd has no memory");
  }
  ~Zstandard() override { ZSTD_freeDStream(stream_); }

  void unpack(std::string_view& in, std::string& out) override {
    const size_t before = out.size();
    out.resize(before + kRead);
    ZSTD_inBuffer from = {in.data(), in.size(), 0};
    ZSTD_outBuffer to = {out.data() + before, kRead, 0};
    const size_t code = ZSTD_decompressStream(stream_, &to, &from);
    in.remove_prefix(from.pos);
    out.resize(before + to.pos);
    if (ZSTD_isError(code)) fail("the zstd data is damaged: ", ZSTD_getErrorName(code));
    whole_ = code == 0;
  }
  bool whole() const override { return whole_; }

 private:
  ZSTD_DStream* stream_;
  bool whole_ = false;
};

InputStream::InputStream(const std::string& path, const std::atomic<bool>* stopped)
    : path_(path == "-" ? "standard input" : path),
      stopped_(stopped),
      descriptor_(path == "-" ? STDIN_FILENO : open_for_reading(path)) {
  try {
    while (buffer_.size() < kZstandardMagic.size() && fill()) {
    }
    const bool gzip = buffer_.starts_with(kGzipMagic), zstandard = buffer_.starts_with(kZstandardMagic);
    if ((path.ends_with(".gz") && !gzip) || (path.ends_with(".zst") && !zstandard))
      fail("cannot read ", quote(path), ": the file is no ", path.ends_with(".gz") ? "gzip" : "zstd", " data");
    if (gzip) unpacker_ = std::make_unique<Gzip>();
    if (zstandard) unpacker_ = std::make_unique<Zstandard>();
  } catch (...) {
    if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
    throw;
  }
}

InputStream::~InputStream() {
  if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
}

// Adds to the buffer; false at the end of the file.
bool InputStream::fill() {
  buffer_.erase(0, used_);
  used_ = 0;
  const size_t before = buffer_.size();
  buffer_.resize(before + kRead);
  while (true) {
    check_interrupt();
    if (stopped_ && *stopped_) throw Interrupted("stopped");
    pollfd wait = {descriptor_, POLLIN, 0};
    const int ready = ::poll(&wait, 1, kWaitMilliseconds);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t count = ::read(descriptor_, buffer_.data() + before, kRead);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) fail("cannot read ", quote(path_), ": ", std::strerror(errno));
    buffer_.resize(before + static_cast<size_t>(count));
    packed_ += static_cast<uint64_t>(count);
    return count > 0;
  }
}

bool InputStream::read(std::string& out) {
  const size_t before = out.size();
  while (out.size() == before) {
    const bool empty = used_ == buffer_.size();
    if (empty && !fill()) {
      if (unpacker_ && !unpacker_->whole()) fail("cannot read ", quote(path_), ": the packed data ends too early");
      return false;
    }
    std::string_view in = std::string_view(buffer_).substr(used_);
    if (unpacker_) {
      try {
        unpacker_->unpack(in, out);
      } catch (const Error& error) {
        fail("cannot read ", quote(path_), ": ", error.what());
      }
    } else {
      out += in;
      in = {};
    }
    used_ = buffer_.size() - in.size();
  }
  const std::string_view added = std::string_view(out).substr(before);
  text_ += added.size();
  hash_.add(added);
  return true;
}

}  // namespace motet
