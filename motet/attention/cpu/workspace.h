#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

// Memory of one call: page-aligned pieces of one region that the process keeps for the next call up to a limit, on huge
// pages where the system gives them.
namespace motet::cpu {

/// Bytes that are kept between calls, all threads together.
inline constexpr size_t kRetainedBytes = size_t{256} << 20;

/// A region of memory of one call. First `reserve` the pieces, then `allocate`, then take each with `get`.
class Workspace {
 public:
  Workspace() { offset_.reserve(16); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  /// Announces a piece of `count` floats; returns its handle.
  size_t reserve(int64_t count);
  /// False when the system has no memory.
  bool allocate();
  float* get(size_t handle) const { return reinterpret_cast<float*>(region_ + offset_[handle]); }

 private:
  std::vector<size_t> offset_;
  size_t need_ = 0, capacity_ = 0;
  char* region_ = nullptr;
};

/// Unmaps what is kept between calls.
void release_workspaces();

/// Tests: what a workspace begins with, so that a number read before it is written shows: NaN, or numbers that grow
/// along 64 columns, as scores of an earlier call may.
enum class Poison : uint8_t { none, nan, growing };
void poison_workspaces(Poison);

}  // namespace motet::cpu
