#pragma once
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "motet/generate/options.h"
#include "motet/models/model.h"

namespace motet {

/// The words of cache_types() (options.h).
const char* name(CacheType);
CacheType parse_cache_type(const std::string& name);  // throws UsageError

/// What is stored of one tensor that a mechanism's `keys` gives, [B,S,...], S growing; it knows no mechanism.
class KeyRows {
 public:
  KeyRows(const Tensor& like, CacheType, int64_t capacity);
  /// Where they do not fit the capacity doubles, up to `most` or what is written.
  void write(int64_t at, const Tensor& added_BS, int64_t most = INT64_MAX);
  /// The first `count`, in the model's dtype; or, where `narrow` suits the reader and the model is of float32, as they
  /// are stored: in 16 bits, or in 8, whose scales `read_scales` gives.
  Tensor read(int64_t count, bool narrow = false) const;
  /// [B,S,...] without the last dimension, of what read(count, true) gives in 8 bits; else undefined.
  Tensor read_scales(int64_t count) const;
  void keep(int64_t from, int64_t count, int64_t capacity);  // these alone, in new memory
  KeyRows beginning(int64_t count, int64_t capacity) const;  // a copy of the first
  void repeat(int64_t times);
  int64_t bytes() const;

 private:
  at::ScalarType model_type_;
  CacheType type_;
  Tensor values_, scales_;  // scales [B,S,...] without the last dimension, int8 alone
};

/// Keys as they are stored; scales where k and v have 8 bits.
struct HeldKeys {
  Keys keys;
  KeyScales scales;
};

/// The keys of one layer. A layer with a window keeps fewer than 2 w of its last tokens.
class LayerCache {
 public:
  LayerCache(CacheType type, int64_t capacity) : type_(type), capacity_(capacity) {}
  /// Appends the keys of new tokens and gives all that are held; the first of them is token `begin()`. `narrow`: keys
  /// and values may come in 16 or 8 bits, as composed_attention takes them.
  HeldKeys append(const Keys& added, bool narrow);
  void keep_window(int64_t window);
  /// Whether what a next token at `end` sees is still held.
  bool can_end_at(int64_t end) const;
  void end_at(int64_t end) { held_ = end - begin_; }
  /// A copy of what is held before `end`, which may grow to another capacity.
  LayerCache beginning(int64_t end, int64_t capacity) const;
  void repeat(int64_t times);
  int64_t begin() const { return begin_; }
  int64_t held() const { return held_; }
  int64_t bytes() const;

 private:
  CacheType type_;
  int64_t capacity_, begin_ = 0, held_ = 0, window_ = 0;
  std::deque<KeyRows> tensors_;  // in the order of a walk over Keys
};

struct CacheOptions {
  CacheType type = CacheType::model;
  /// What dynamic position scaling is based on: the planned length, the same for the whole request; or, as published
  /// with CoCA, the length at each step, keys written before keeping theirs.
  bool stepwise_base = false;
  /// Keys in the mechanism's smaller form (CoCA: 3/4 of the bytes), made whole again in every step.
  bool compact = false;
};

/// The keys and values of all layers for the tokens so far, for decoding: each step computes new tokens alone and
/// equals the forward pass over all of them. Sequences of unequal length are padded in front; padding is never seen.
class Cache {
 public:
  /// `capacity` tokens at most, padding included; `padding` [B]: tokens in front of each sequence that do not count.
  Cache(const ModelConfig&, int64_t capacity, std::vector<int64_t> padding, CacheOptions = {});

  /// Hidden states after the final norm [B,T,C] of the next T tokens. `length` as in ModelImpl::hidden, padding not
  /// counted. Throws Error beyond the capacity.
  Tensor step(ModelImpl&, const Tensor& ids_BT, int64_t length);

  /// Tokens on their way through the layers.
  struct Entering {
    Positions at;
    int64_t end = 0;
    bool fresh = false;                      // nothing was held before
    Tensor padding_B;                        // undefined: none
    std::map<int64_t, Positions> held_from;  // of the keys, by their first: layers without a window share them
  };
  /// The parts of a step, for whoever walks several caches through a model at once: where the next `count` tokens
  /// stand; what each layer in turn makes of their queries and keys, out [B,T,Ho,E]; the end. Throws as step does.
  Entering enter(int64_t count, int64_t length, at::Device) const;
  Keys keys(Mechanism&, const Tensor& normed_BTC, const Positions&) const;
  Tensor attend(Entering&, int64_t layer, Mechanism&, const Queries&, const Keys& added);
  void entered(const Entering& tokens) { size_ = tokens.end; }

  /// Forgets all but the first `tokens`; false (and nothing changes) when a window has dropped what they would need.
  bool truncate(int64_t tokens);
  bool can_end_at(int64_t tokens) const;
  /// A copy of the first `tokens`, at which it can end, with another capacity.
  Cache beginning(int64_t tokens, int64_t capacity) const;
  /// One sequence becomes `times`, for several samples of one prompt.
  void repeat(int64_t times);

  int64_t size() const { return size_; }
  int64_t capacity() const { return capacity_; }
  int64_t bytes() const;  // allocated now
  const CacheOptions& options() const { return options_; }

 private:
  Positions positions(int64_t begin, int64_t end, int64_t length, at::Device) const;

  std::vector<LayerCache> layers_;
  std::vector<int64_t> padding_;
  CacheOptions options_;
  int64_t capacity_, size_ = 0;
};

/// What the keys of one token take in a layer, and how many tokens it sees; 0: all.
struct LayerCost {
  int64_t token_bytes, window;
};
std::vector<LayerCost> cache_costs(ModelImpl&, const CacheOptions&);
/// What the cache of one sequence of `tokens` tokens holds, in bytes; a growing one may hold up to twice that.
int64_t cache_bytes(const std::vector<LayerCost>&, int64_t tokens);
int64_t cache_bytes(ModelImpl&, int64_t tokens, const CacheOptions&);

}  // namespace motet
