// The decode kernels: which blocks run, in which memory.
#include "motet/attention/cuda/decode.h"

#include <type_traits>

#include "motet/attention/cuda/decode-inl.h"
#include "motet/attention/cuda/general_call.h"

namespace motet::cuda::decode {
namespace {

constexpr int64_t kMostQueries = 16, kMostWidth = 32 * kVector;
constexpr int kQueries = 4;            // that a block owns where there are more than one, if its memory allows
constexpr int64_t kShared = 96 << 10;  // bytes of a block, which every GPU has
constexpr int64_t kEnoughBlocks = 1024, kMostParts = 64;  // of a call; into which a walk over the keys is cut

/// f(queries of a block, lanes of a row), both constants.
template <class Function>
void with_sizes(const plain::Problem& p, const Call& c, const Function& f) {
  const auto with_team = [&](auto own) {
    const int64_t width = std::max(p.D, p.E);
    if (width <= 8 * kVector)
      f(own, std::integral_constant<int, 8>());
    else if (width <= 16 * kVector)
      f(own, std::integral_constant<int, 16>());
    else
      f(own, std::integral_constant<int, 32>());
  };
  if (p.T > 1 && Tile<kQueries, 8, false>::bytes(c, true) <= kShared)
    with_team(std::integral_constant<int, kQueries>());
  else
    with_team(std::integral_constant<int, 1>());
}

/// By shapes alone, so that results do not depend on the device.
int parts_of(const plain::Problem& p, int64_t blocks) {
  const int64_t keys = p.window > 0 ? std::min(p.S, p.window + kQueries) : p.S;
  return static_cast<int>(std::clamp<int64_t>(std::min(kEnoughBlocks / blocks, keys / kKeys), 1, kMostParts));
}

/// A call with its place in the workspace.
struct Work {
  Call c{};
  int64_t blocks = 0, bytes = 0;

  Work(const plain::Problem& p, void* memory) {
    static_cast<general::Call&>(c) = general::call_of(p);
    with_sizes(p, c, [&](auto own, auto) { blocks = blocks_of(p.T, own) * p.B; });
    c.parts = parts_of(p, blocks);
    Workspace space = general::forward_memory(p, c, memory, true);
    c.logits = space.take<float>(p.B * p.T * p.softmax_heads * p.S);
    bytes = space.bytes();
  }
};

bool in_vectors(const plain::Operand& x, int64_t width) {
  const int64_t numbers = x.type == plain::Type::float32 ? 4 : 8;  // of 16 bytes; in 8 bits of 8
  const bool aligned =
      x.type == plain::Type::int8 ? reinterpret_cast<uintptr_t>(x.data) % 8 == 0 : holds_vectors(x.data);
  return aligned && width % kVector == 0 && x.batch_stride % numbers == 0 && x.row_stride % numbers == 0 &&
         x.head_stride % numbers == 0;
}

}  // namespace

const char* why_not(const plain::Problem& p, Pass pass) {
  if (pass != Pass::forward) return "not a forward pass";
  if (p.T > kMostQueries) return "more than 16 queries";
  if (p.D > kMostWidth || p.E > kMostWidth) return "a width beyond 256";
  if ((p.k.type == plain::Type::int8) != (p.v.type == plain::Type::int8)) return "8 bits of keys or values alone";
  if (!in_vectors(p.q, p.D) || !in_vectors(p.k, p.D) || !in_vectors(p.v, p.E))
    return "rows that are not vectors of 8 numbers at multiples of 16 bytes";
  return "";
}

int64_t workspace_bytes(const plain::Problem& p, Pass) { return Work(p, nullptr).bytes; }

const char* forward(const plain::Problem& p, const Output& to, const Runtime& run) {
  Work work(p, run.workspace);
  Call& c = work.c;
  c.lse = to.lse, c.out = to.out;
  Launches launches(run.stream);
  const auto run_all = [&](auto own, auto team, auto eight) {
    using Sized = Tile<own.value, team.value, eight.value>;
    launches.run(keep_logits<own.value, team.value, eight.value>, work.blocks, c.parts, kThreads,
                 Sized::bytes(c, false), c);
    general::put_joined_stats(launches, p, c);
    launches.run(sum_values<own.value, team.value, eight.value>, work.blocks, c.parts, kThreads, Sized::bytes(c, true),
                 c);
    general::put_joined_outputs(launches, p, c);
  };
  with_sizes(p, c, [&](auto own, auto team) {
    if (p.k.type == plain::Type::int8)
      run_all(own, team, std::true_type());
    else
      run_all(own, team, std::false_type());
  });
  return launches.error();
}

}  // namespace motet::cuda::decode
