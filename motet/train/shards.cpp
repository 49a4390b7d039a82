#include "motet/train/shards.h"

#include <algorithm>
#include <numeric>

namespace motet {
namespace {

constexpr int64_t kAtOnce = 1 << 20;  // numbers of each process

int64_t numbers(const Shards& shards) {
  return std::accumulate(shards.begin(), shards.end(), int64_t{0},
                         [](int64_t sum, const Shard& s) { return sum + s.end - s.begin; });
}

// Calls use(part of a tensor, its place in the stretch) for numbers at ... at + count of tensors one behind another.
template <class Use>
void walk(const std::vector<Tensor>& tensors, int64_t at, int64_t count, const Use& use) {
  int64_t first = 0;  // of the tensor
  for (const Tensor& tensor : tensors) {
    const int64_t begin = std::max(at, first), end = std::min(at + count, first + tensor.numel());
    if (begin < end) use(tensor.view({-1}).slice(0, begin - first, end - first), begin - at);
    first += tensor.numel();
  }
}

}  // namespace

std::vector<Shards> flat_shards(const Shards& parameters, int64_t size) {
  const int64_t all = numbers(parameters);
  std::vector<Shards> out(static_cast<size_t>(size));
  for (int64_t r = 0; r < size; ++r) {
    const int64_t begin = all * r / size, end = all * (r + 1) / size;
    int64_t first = 0;
    for (const Shard& p : parameters) {
      const int64_t from = std::max(begin, first), to = std::min(end, first + p.end);
      if (from < to) out[static_cast<size_t>(r)].push_back({p.name, p.parameter, from - first, to - first});
      first += p.end;
    }
  }
  return out;
}

std::vector<Shards> whole_shards(const Shards& parameters, int64_t size) {
  std::vector<const Shard*> order;
  for (const Shard& p : parameters) order.push_back(&p);
  std::ranges::stable_sort(order, [](const Shard* a, const Shard* b) { return a->end > b->end; });
  std::vector<Shards> out(static_cast<size_t>(size));
  for (const Shard* p : order)
    std::ranges::min_element(out, {}, [](const Shards& s) { return numbers(s); })->push_back(*p);
  return out;
}

void share(const Processes& processes, const std::vector<Shards>& shards, const std::vector<Tensor>& own,
           const std::vector<std::vector<Tensor>>& everyones) {
  int64_t longest = 0;
  for (const Shards& one : shards) longest = std::max(longest, numbers(one));
  const Shard* any = nullptr;
  for (const Shards& one : shards)
    if (!any && !one.empty()) any = &one.front();
  for (int64_t at = 0; at < longest; at += kAtOnce) {
    const int64_t count = std::min(kAtOnce, longest - at);
    const Tensor mine = any->parameter.detach().new_zeros({count});
    walk(own, at, count,
         [&](const Tensor& part, int64_t place) { mine.slice(0, place, place + part.numel()).copy_(part); });
    const Tensor all = processes.everyones(mine);
    for (size_t r = 0; r < everyones.size(); ++r)
      walk(everyones[r], at, count, [&](const Tensor& part, int64_t place) {
        part.copy_(all[static_cast<int64_t>(r)].slice(0, place, place + part.numel()));
      });
  }
}

}  // namespace motet
