#include "motet/cuda/emulation.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace motet::cuda::emulated {
namespace {

// ---- fibers --------------------------------------------------------------------------------------------------------

constexpr size_t kStack = 64 << 10;
constexpr int kMaxWarps = 16, kCopies = kMaxWarps;  // copies are one more warp

extern "C" void motet_emulated_switch(void** from, void* to);
#if defined(__x86_64__)
// What a called function must keep, and the stack pointer.
asm(R"(.text
.globl motet_emulated_switch
motet_emulated_switch:
  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
  ret
)");
constexpr int kSaved = 6;
#elif defined(__aarch64__)
asm(R"(.text
.globl motet_emulated_switch
motet_emulated_switch:
  sub sp, sp, #176
  stp x19, x20, [sp, #0];  stp x21, x22, [sp, #16]; stp x23, x24, [sp, #32]; stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]; stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96];   stp d10, d11, [sp, #112]; stp d12, d13, [sp, #128]; stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0];  ldp x21, x22, [sp, #16]; ldp x23, x24, [sp, #32]; ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]; ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96];   ldp d10, d11, [sp, #112]; ldp d12, d13, [sp, #128]; ldp d14, d15, [sp, #144]
  add sp, sp, #176
  ret
)");
#else
#error "the emulation switches stacks on x86-64 and ARM64"
#endif

struct Fiber {
  void* stack_pointer = nullptr;
  bool done = false;
  std::unique_ptr<std::byte[]> stack;
};

/// What a warp had seen of every warp when: a barrier makes those who meet there see what each had seen.
using Clock = std::array<uint32_t, kMaxWarps + 1>;

struct Warp {
  int arrived = 0;
  uint32_t meetings = 0;
  Lanes in{}, out{};
  Clock clock{};
};

/// The last accesses to 4 bytes of shared memory in a block.
struct Word {
  uint32_t block = 0;
  int16_t writer = -1;  // thread
  uint32_t written = 0, written_meeting = 0;
  Clock read{};  // by each warp
  int16_t reader = -1;
  uint32_t read_meeting = 0;
  bool several_readers = false;  // lanes of `reader`'s warp, since read_meeting
};

/// A barrier at which copies arrive.
struct Arrivals {
  struct Copy {
    uint32_t to;
    std::vector<std::byte> bytes;
    Clock seen;
  };
  std::vector<Copy> copies;
  int64_t expected = 0;
  uint32_t phase = 0;
  bool announced = false;
  Clock clock{};
};

struct Block {
  std::map<uint32_t, Arrivals> arrivals;
  int some_arrived = 0;
  uint32_t some_barrier = 0;
  std::vector<int> some_warps;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<std::byte> memory;
  std::vector<Word> words;
  std::function<void()> kernel;
  void* main = nullptr;
  int current = 0, threads = 0;
  int arrived = 0, sum = 0, last_sum = 0;
  uint32_t barrier = 0, number = 0;
  int64_t steps = 0;  // anything that lets somebody go on
  bool reversed = false;
  std::string fault;
};
Block block;

int warp() { return block.current / 32; }

void yield() { motet_emulated_switch(&block.fibers[block.current].stack_pointer, block.main); }

void run_fiber() {
  block.kernel();
  block.fibers[block.current].done = true;
  ++block.steps;
  yield();
  std::abort();  // a fiber that is done is never resumed
}

void start(Fiber& fiber) {
  if (!fiber.stack) fiber.stack = std::make_unique<std::byte[]>(kStack);
  const auto top = reinterpret_cast<uintptr_t>(fiber.stack.get() + kStack) / 64 * 64 - 64;
#if defined(__x86_64__)
  auto** at = reinterpret_cast<void**>(top);
  *--at = nullptr;  // keeps the stack aligned as after a call
  *--at = reinterpret_cast<void*>(&run_fiber);
  for (int i = 0; i < kSaved; ++i) *--at = nullptr;
  fiber.stack_pointer = at;
#else
  auto* at = reinterpret_cast<uint64_t*>(top - 176);
  std::fill_n(at, 22, 0);
  at[11] = reinterpret_cast<uint64_t>(&run_fiber);  // x30
  fiber.stack_pointer = at;
#endif
  fiber.done = false;
}

// ---- faults --------------------------------------------------------------------------------------------------------

void complain(const std::string& what) {
  if (!block.fault.empty()) return;
  block.fault = what + " in block (" + std::to_string(blockIdx.x) + "," + std::to_string(blockIdx.z) + "), thread " +
                std::to_string(block.current);
}

// An access by the thread that runs, or by a copy that has seen what `seen` says.
void check(uint32_t at, bool write, const Clock* copy = nullptr) {
  Word& word = block.words[at / 4];
  if (word.block != block.number) word = Word{.block = block.number};
  if (copy) {
    if (word.writer >= 0 && word.written > (*copy)[word.writer / 32])
      complain("a copy to byte " + std::to_string(at) + " races with a write");
    for (int w = 0; w < static_cast<int>(block.warps.size()); ++w)
      if (word.read[w] > (*copy)[w])
        complain("a copy to byte " + std::to_string(at) + " races with a read of warp " + std::to_string(w));
    word.writer = kCopies * 32, word.written = (*copy)[kCopies];
    return;
  }
  const Warp& mine = block.warps[warp()];
  const auto where = [&] { return " of shared memory at byte " + std::to_string(at) + " races with thread "; };
  if (word.writer >= 0 && word.writer != block.current) {
    const int other = word.writer / 32;
    if (other == warp() ? word.written_meeting == mine.meetings : word.written > mine.clock[other])
      complain((write ? "a write" : "a read") + where() + std::to_string(word.writer) + "'s write");
  }
  if (write) {
    for (int w = 0; w < static_cast<int>(block.warps.size()); ++w)
      if (w != warp() && word.read[w] > mine.clock[w])
        complain("a write" + where() + "a read of warp " + std::to_string(w));
    const bool beside = word.reader >= 0 && word.reader / 32 == warp() && word.read_meeting == mine.meetings;
    if (beside && (word.several_readers || word.reader != block.current))
      complain("a write" + where() + std::to_string(word.reader) + "'s read");
    word.writer = static_cast<int16_t>(block.current), word.written = mine.clock[warp()];
    word.written_meeting = mine.meetings;
  } else {
    const bool beside = word.reader >= 0 && word.reader / 32 == warp() && word.read_meeting == mine.meetings;
    word.several_readers = beside && (word.several_readers || word.reader != block.current);
    word.reader = static_cast<int16_t>(block.current), word.read_meeting = mine.meetings;
    word.read[warp()] = mine.clock[warp()];
  }
}

// All warps have seen everything; each begins a new moment of its own.
void join_all() {
  Clock all{};
  for (const Warp& w : block.warps)
    for (int i = 0; i <= kMaxWarps; ++i) all[i] = std::max(all[i], w.clock[i]);
  for (size_t w = 0; w < block.warps.size(); ++w) block.warps[w].clock = all, ++block.warps[w].clock[w];
}

void run_block() {
  block.memory.assign(block.memory.size(), std::byte{0xff});
  ++block.number;
  block.arrived = block.sum = block.some_arrived = 0;
  block.arrivals.clear(), block.some_warps.clear();
  for (size_t w = 0; w < block.warps.size(); ++w) {
    block.warps[w] = Warp();
    block.warps[w].clock[w] = 1;
  }
  for (int t = 0; t < block.threads; ++t) start(block.fibers[t]);
  for (bool any = true; any;) {
    any = false;
    const int64_t before = block.steps;
    for (int i = 0; i < block.threads; ++i) {
      const int t = block.reversed ? (block.threads - 32 - i / 32 * 32) + i % 32 : i;
      if (block.fibers[t].done) continue;
      any = true;
      block.current = t, threadIdx = {t, 0, 0};
      motet_emulated_switch(&block.main, block.fibers[t].stack_pointer);
    }
    if (any && block.steps == before) return complain("threads wait for others for ever");
  }
}

}  // namespace

std::string take_fault() { return std::exchange(block.fault, ""); }
void reverse_order(bool reversed) { block.reversed = reversed; }

void launch(Index grid, int threads, int64_t shared_bytes, const std::function<void()>& kernel) {
  if (shared_bytes > shared_limit)
    complain("a block wants " + std::to_string(shared_bytes) + " bytes of shared memory");
  if (threads % 32 || threads > 32 * kMaxWarps) complain("a block has " + std::to_string(threads) + " threads");
  block.threads = threads, block.kernel = kernel;
  block.warps.resize(threads / 32);
  if (static_cast<int>(block.fibers.size()) < threads) block.fibers.resize(threads);
  block.memory.resize(shared_bytes);
  block.words.resize(shared_bytes / 4 + 1);
  gridDim = grid;
  for (int z = 0; z < grid.z; ++z)
    for (int x = 0; x < grid.x; ++x) {
      blockIdx = {x, 0, z};
      run_block();
    }
}

std::byte* shared(uint32_t at, int bytes, bool write) {
  static std::array<std::byte, 64> nowhere;
  if (at % std::min(bytes, 16) || at + static_cast<uint64_t>(bytes) > block.memory.size()) {
    complain("an access to " + std::to_string(bytes) + " bytes at byte " + std::to_string(at) + " of " +
             std::to_string(block.memory.size()) + " of shared memory");
    return nowhere.data();
  }
  for (uint32_t i = at / 4; i < (at + bytes + 3) / 4; ++i) check(i * 4, write);
  return block.memory.data() + at;
}

void check_vector(const void* at, uintptr_t bytes) {
  if (reinterpret_cast<uintptr_t>(at) % bytes) complain("a vector of the device's memory is not aligned");
}

int block_sum(int value) {
  const uint32_t mine = block.barrier;
  block.sum += value;
  ++block.steps;
  if (++block.arrived < block.threads) {
    while (block.barrier == mine) yield();
  } else {
    join_all();
    for (Warp& w : block.warps) ++w.meetings;
    block.last_sum = block.sum;
    block.arrived = block.sum = 0;
    ++block.barrier;
  }
  return block.last_sum;
}
void block_meet() { block_sum(0); }

void some_meet(int threads) {
  const uint32_t mine = block.some_barrier;
  block.some_warps.push_back(warp());
  ++block.steps;
  if (++block.some_arrived < threads) {
    while (block.some_barrier == mine) yield();
    return;
  }
  Clock all{};
  for (const int w : block.some_warps)
    for (int i = 0; i <= kMaxWarps; ++i) all[i] = std::max(all[i], block.warps[w].clock[i]);
  std::sort(block.some_warps.begin(), block.some_warps.end());
  block.some_warps.erase(std::unique(block.some_warps.begin(), block.some_warps.end()), block.some_warps.end());
  for (const int w : block.some_warps) block.warps[w].clock = all, ++block.warps[w].clock[w], ++block.warps[w].meetings;
  block.some_warps.clear(), block.some_arrived = 0;
  ++block.some_barrier;
}

void arrivals_init(uint32_t barrier) {
  shared(barrier, 8, true);
  block.arrivals[barrier] = {};
}

void arrivals_expect(uint32_t barrier, uint32_t bytes) {
  Arrivals& at = block.arrivals[barrier];
  if (at.announced) complain("a barrier of copies is announced twice in a phase");
  at.announced = true, at.expected += bytes;
  for (int i = 0; i <= kMaxWarps; ++i) at.clock[i] = std::max(at.clock[i], block.warps[warp()].clock[i]);
  ++block.warps[warp()].clock[warp()];
  ++block.steps;
}

void copy_later(uint32_t barrier, uint32_t to, std::vector<std::byte> bytes) {
  block.arrivals[barrier].copies.push_back({to, std::move(bytes), block.warps[warp()].clock});
}

void arrivals_wait(uint32_t barrier, uint32_t parity) {
  Arrivals& at = block.arrivals[barrier];
  for (int polls = 0;; ++polls) {
    if ((at.phase & 1) != parity) break;
    if (at.announced && polls > 0) {  // everybody else has gone on as far as they can without these copies
      for (const Arrivals::Copy& copy : at.copies) {
        Clock seen = copy.seen;
        seen[kCopies] = ++at.clock[kCopies];
        if (copy.to + copy.bytes.size() > block.memory.size()) {
          complain("a copy of " + std::to_string(copy.bytes.size()) + " bytes to byte " + std::to_string(copy.to));
          continue;
        }
        for (size_t i = 0; i < copy.bytes.size(); i += 4) check(copy.to + static_cast<uint32_t>(i), true, &seen);
        std::copy(copy.bytes.begin(), copy.bytes.end(), block.memory.begin() + copy.to);
        at.expected -= static_cast<int64_t>(copy.bytes.size());
      }
      at.copies.clear();
      if (at.expected != 0) complain("copies bring other bytes than were announced");
      at.expected = 0, at.announced = false, ++at.phase;
      ++block.steps;
      break;
    }
    yield();
  }
  Warp& mine = block.warps[warp()];
  for (int i = 0; i <= kMaxWarps; ++i)
    if (i != warp()) mine.clock[i] = std::max(mine.clock[i], at.clock[i]);
}

Lanes warp_meet(const std::array<uint32_t, 8>& value) {
  Warp& w = block.warps[warp()];
  const uint32_t mine = w.meetings;
  w.in[lane()] = value;
  ++block.steps;
  if (++w.arrived < 32) {
    while (w.meetings == mine) yield();
  } else {
    w.arrived = 0;
    w.out = w.in;
    ++w.meetings;
  }
  return w.out;
}

}  // namespace motet::cuda::emulated
