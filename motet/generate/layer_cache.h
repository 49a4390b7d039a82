#pragma once
#include <deque>
#include <string>
#include <vector>

#include "motet/attention/attention.h"
#include "motet/generate/options.h"
#include "motet/ops/graph.h"

namespace motet {

/// The words of cache_types() (options.h).
const char* name(CacheType);
CacheType parse_cache_type(const std::string& name);  // throws UsageError

/// How the rows of tokens lie in memory. side_by_side: what is stored of a token in one piece. by_head, of one tensor
/// of heads: the rows of a head behind each other, as whoever reads one head after another meets memory fastest.
enum class RowOrder : uint8_t { side_by_side, by_head };

/// What is stored of some of the tensors that a mechanism's `keys` gives, [B,S,...] each, S growing. It knows no
/// mechanism.
class KeyRows {
 public:
  KeyRows(at::TensorList like, CacheType, int64_t capacity, RowOrder = RowOrder::side_by_side);
  /// Where they do not fit the capacity doubles, up to `most` or what is written.
  void write(int64_t at, at::TensorList added, int64_t most = INT64_MAX);
  /// The first `count`, in the model's dtype; or, where `narrow` suits the reader and the model is of float32, as they
  /// are stored: in 16 bits, or in 8, whose scales `read_scales` gives.
  std::vector<Tensor> read(int64_t count, bool narrow = false) const;
  /// [B,S,...] without the last dimension, of each tensor that read(count, true) gives in 8 bits; else none.
  std::vector<Tensor> read_scales(int64_t count) const;
  /// The one token at place_1 [1], a number of the device, in memory that is there.
  void write_at(const Tensor& place_1, at::TensorList added);
  void keep(int64_t from, int64_t count, int64_t capacity);  // these alone, in new memory
  void move_to_front(int64_t from, int64_t count);           // those, in the memory that is there
  KeyRows beginning(int64_t count, int64_t capacity) const;  // a copy of the first
  void repeat(int64_t times);
  int64_t bytes() const;
  int64_t capacity() const { return values_BS.size(1); }
  void add_memory(std::vector<MemoryOf>&) const;

 private:
  std::vector<std::vector<int64_t>> shapes_;  // of each tensor, without [B,S]
  at::ScalarType model_type_;
  CacheType type_;
  Tensor values_BS;   // [B,S,X], or, by head, [B,S,G,D] in memory of [B,G,S,D]
  Tensor scales_BSY;  // int8 alone: one for the last dimension of a tensor
};

/// Keys as they are stored; scales where they have 8 bits.
struct HeldKeys {
  Keys keys;
  KeyScales scales;
};

/// The keys of one layer. A layer with a window keeps fewer than 2 w of its last tokens.
class LayerCache {
 public:
  LayerCache(CacheType type, int64_t capacity) : type_(type), capacity_(capacity) {}
  /// Appends the keys of new tokens and gives all that are held; the first of them is token `begin()`. `narrow`: they
  /// may come in 16 or 8 bits, as composed_attention takes them.
  HeldKeys append(const Keys& added, bool narrow);
  /// The keys of one token at place_1 [1] = held(), a number of the device, which may do it again by itself with
  /// another (ops/graph.h): in memory that is there, all of which comes back, what is held and what is not. The host
  /// counts it by appended(). Wants room for one.
  HeldKeys append_at(const Tensor& place_1, const Keys& added, bool narrow);
  void appended();
  int64_t room() const { return rows_.empty() ? 0 : rows_.front().capacity() - held_; }
  void add_memory(std::vector<MemoryOf>&) const;
  void keep_window(int64_t window);
  /// Whether what a next token at `end` sees is still held.
  bool can_end_at(int64_t end) const;
  void end_at(int64_t end) { held_ = end - begin_; }
  /// A copy of what is held before `end`, which may grow to another capacity.
  LayerCache beginning(int64_t end, int64_t capacity) const;
  void repeat(int64_t times);
  int64_t begin() const { return begin_; }
  int64_t window() const { return window_; }  // 0: none
  int64_t held() const { return held_; }
  int64_t bytes() const;

 private:
  template <class Write>
  HeldKeys with(const Keys& added, int64_t count, bool narrow, const Write&);

  CacheType type_;
  int64_t capacity_, begin_ = 0, held_ = 0, window_ = 0;
  std::deque<KeyRows> rows_;  // of keys, values and the parts of either mix, those that there are
};

}  // namespace motet
