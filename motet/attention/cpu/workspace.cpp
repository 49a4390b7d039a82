#include "motet/attention/cpu/workspace.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

namespace motet::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20, kPage = 4096;

struct Region {
  char* data;
  size_t bytes;
};

std::mutex mutex;
std::vector<Region>& kept() {
  static std::vector<Region> regions;
  return regions;
}
std::atomic<Poison> poison = Poison::none;

char* map(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
#ifdef MADV_HUGEPAGE
  if (bytes >= kHugePage) madvise(p, bytes, MADV_HUGEPAGE);
#endif
  return static_cast<char*>(p);
}

// The smallest kept region that is large enough, but not so large that a later piece would miss it.
Region take(size_t need) {
  const std::lock_guard lock(mutex);
  auto best = kept().end();
  for (auto r = kept().begin(); r != kept().end(); ++r)
    if (r->bytes >= need && r->bytes <= std::max(4 * need, kHugePage) &&
        (best == kept().end() || r->bytes < best->bytes))
      best = r;
  if (best == kept().end()) return {nullptr, 0};
  const Region found = *best;
  kept().erase(best);
  return found;
}

void give(Region region) {
  const std::lock_guard lock(mutex);
  kept().push_back(region);
  size_t total = 0;
  for (const Region& r : kept()) total += r.bytes;
  while (total > kRetainedBytes) {  // the oldest go first
    total -= kept().front().bytes;
    munmap(kept().front().data, kept().front().bytes);
    kept().erase(kept().begin());
  }
}

}  // namespace

Workspace::~Workspace() {
  if (region_) give({region_, capacity_});
}

size_t Workspace::reserve(int64_t count) {
  offset_.push_back(need_);
  // A line between pieces, so that equal offsets of two pieces do not meet in one cache set.
  need_ += (static_cast<size_t>(std::max<int64_t>(count, 0)) * sizeof(float) + 64 + 255) / 256 * 256 + 256;
  return offset_.size() - 1;
}

bool Workspace::allocate() {
  const Region old = take(need_);
  if (old.data) {
    region_ = old.data, capacity_ = old.bytes;
  } else {
    const size_t grain = need_ >= kHugePage ? kHugePage : kPage;
    capacity_ = (need_ + grain - 1) / grain * grain;
    region_ = map(capacity_);
  }
  if (region_ && poison == Poison::nan) std::memset(region_, 0xff, need_);  // all bits set is a NaN
  if (region_ && poison == Poison::growing)
    for (size_t i = 0; i < need_ / sizeof(float); ++i)
      reinterpret_cast<float*>(region_)[i] = static_cast<float>(1000 * (i % 64));
  return region_ != nullptr;
}

void release_workspaces() {
  const std::lock_guard lock(mutex);
  for (const Region& r : kept()) munmap(r.data, r.bytes);
  kept().clear();
}

void poison_workspaces(Poison with) { poison = with; }

}  // namespace motet::cpu
