#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace motet {

/// The rows of one thread. It takes them as they lie, so that it can ask for what comes next; who has none left takes
/// from their end what a thread that is held up has not come to.
class Share {
 public:
  struct Part {
    int64_t begin = 0, end = 0, next = 0;  // next: where the share ended as this part was taken
  };
  void set(int64_t begin, int64_t end) { rows_ = pack(begin, end); }
  Part front(int64_t most) {
    return take([&](int64_t begin, int64_t end) {
      const int64_t to = std::min(end, begin + most);
      return std::pair(Part{begin, to, end}, pack(to, end));
    });
  }
  Part back(int64_t most) {
    return take([&](int64_t begin, int64_t end) {
      const int64_t from = std::max(begin, end - most);
      return std::pair(Part{from, end, end}, pack(begin, from));
    });
  }

 private:
  static uint64_t pack(int64_t begin, int64_t end) { return static_cast<uint64_t>(begin) << 32 | end; }
  template <class F>
  Part take(const F& part_and_rest) {
    for (uint64_t rows = rows_;;) {
      const auto [part, rest] = part_and_rest(rows >> 32, rows & 0xffffffff);
      if (part.begin == part.end || rows_.compare_exchange_weak(rows, rest)) return part;
    }
  }
  std::atomic<uint64_t> rows_{0};
};

}  // namespace motet
