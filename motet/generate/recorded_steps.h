#pragma once
#include <optional>
#include <span>
#include <vector>

#include "motet/generate/cache.h"
#include "motet/ops/graph.h"

namespace motet {

/// Steps of one token that a device records once and repeats: some hundred launches of a step become one, and the host
/// hands over a few numbers. A record is of one model, length and memory of the cache; for another, as when the cache
/// has grown, it is made anew, so nobody has to tell that it is old. But the model stays as it is (prepared or not, its
/// parameters where they lie, its precision) as long as this is used with it.
class RecordedSteps {
 public:
  /// Logits [B,V] on the device, until the next call, of the token after ids [B], which the cache holds from
  /// then on; nothing where this step has to be made by Cache::step: the device records nothing, or the cache says so.
  std::optional<Tensor> logits(ModelImpl&, Cache&, std::span<const int64_t> ids, int64_t length);

 private:
  struct Subject {
    const ModelImpl* model = nullptr;
    int64_t length = 0;
    CacheOptions options;
    std::vector<MemoryOf> memory;
    bool operator==(const Subject&) const = default;
  };
  Tensor step(ModelImpl&, Cache&, int64_t length) const;

  Subject subject_;  // of the record
  Tensor numbers_;   // ids [B], then the cache's places [1 + layers]
  Tensor logits_;
  std::optional<Graph> graph_;
  bool refused_ = false;  // recording failed once
};

}  // namespace motet
