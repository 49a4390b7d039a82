#pragma once
#include <map>
#include <vector>

#include "motet/generate/layer_cache.h"
#include "motet/models/model.h"

namespace motet {

struct CacheOptions {
  CacheType type = CacheType::model;
  /// What dynamic position scaling is based on: the planned length, the same for the whole request; or, as published
  /// with CoCA, the length at each step, keys written before keeping theirs.
  bool stepwise_base = false;
  /// Keys in the mechanism's smaller form (CoCA: 3/4 of the bytes), made whole again in every step.
  bool compact = false;
  /// Where the device can, steps of single tokens are recorded once and repeated (recorded_steps.h).
  bool recorded = true;

  bool operator==(const CacheOptions&) const = default;
};

/// The keys and values of all layers for the tokens so far, for decoding: each step computes new tokens alone and
/// equals the forward pass over all of them. Sequences of unequal length are padded in front; padding is never seen.
class Cache {
 public:
  /// `capacity` tokens at most, padding included; `padding` [B]: tokens in front of each sequence that do not count.
  Cache(const ModelConfig&, int64_t capacity, std::vector<int64_t> padding, CacheOptions = {});

  /// Hidden states after the final norm [B,T,C] of the next T tokens. `length` as in ModelImpl::hidden, padding not
  /// counted; `prompt`: as if they and all before were computed at once, as the first always are. Throws Error beyond
  /// the capacity.
  Tensor step(ModelImpl&, const Tensor& ids_BT, int64_t length, bool prompt = false);

  /// A step of one token that the device may do again by itself (ops/graph.h): it reads where the token stands from
  /// places [1 + layers], which hold what places() gives, and writes into memory that is there. The host counts it by
  /// stepped(). Wants why_not_at() to be "".
  Tensor step_at(ModelImpl&, const Tensor& ids_B1, const Tensor& places, int64_t length);
  std::vector<int64_t> places() const;
  void stepped();
  std::string why_not_at() const;
  /// What step_at reads and writes: while this stays, a record of it stands.
  std::vector<MemoryOf> memory() const;

  /// Tokens on their way through the layers.
  struct Entering {
    Positions at;
    int64_t end = 0;
    bool prompt = false;  // they see what tokens of a whole pass see (Pass)
    Tensor padding_B;     // undefined: none
    Tensor places;        // of step_at; else undefined
    // Of keys, by the first (or the window) and their number: layers share them.
    std::map<std::pair<int64_t, int64_t>, Positions> held;
  };
  /// The parts of a step, for whoever walks several caches through a model at once: where the next `count` tokens
  /// stand; what each layer in turn makes of their queries and keys, out [B,T,Ho,E]; the end. Throws as step does.
  Entering enter(int64_t count, int64_t length, at::Device, bool prompt) const;
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
  const Positions& held_positions(Entering&, const LayerCache&, const Tensor& place_1, int64_t count) const;
  Tensor through(ModelImpl&, const Tensor& ids_BT, Entering&);

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
