// The tensor-core kernels: which blocks run, in which memory. For sm_90: tiles come by tensor copies.
#include "motet/attention/cuda/tensor.h"

#include "motet/attention/cuda/general.h"
#include "motet/attention/cuda/tensor_backward-inl.h"
#include "motet/attention/cuda/tensor_forward-inl.h"
#include "motet/attention/cuda/tensor_pack-inl.h"
#include "motet/cuda/launches.h"

namespace motet::cuda::tensor {
namespace {

int padded(int64_t rows) { return static_cast<int>(blocks_of(rows, kSumRows) * kSumRows); }
int units_of(const plain::Problem& p) { return static_cast<int>(blocks_of(p.score_heads, kHeads)); }

Mixing mixing_of(const plain::Problem& p, bool own_keys) {
  bool any = p.pairs.lambda != nullptr, loop = false;
  for (const plain::HeadMix* mix : {&p.pre, &p.post})
    for (int part = 0; part < kNumMixParts; ++part) {
      any |= mix->has(part);
      loop |= mix->has(part) && (own_keys ? plain::by_query(part) : plain::by_key(part));
    }
  return loop ? Mixing::both : any ? Mixing::own : Mixing::none;
}

bool contiguous_groups(const std::vector<int64_t>& of, int64_t unit) {
  for (size_t h = 0; h < of.size(); ++h) {
    const int64_t first = of[h / unit * unit];
    if (of[h] < first || of[h] >= first + unit) return false;
  }
  return true;
}
bool each_its_own(const std::vector<int64_t>& of, int64_t stored) {
  if (static_cast<int64_t>(of.size()) != stored) return false;
  for (size_t h = 0; h < of.size(); ++h)
    if (of[h] != static_cast<int64_t>(h)) return false;
  return true;
}

// What a tensor copy asks of an operand.
bool copyable(const plain::Operand& x) {
  const auto stride = [](int64_t n) { return n > 0 && n % 8 == 0; };  // whether 0 will do is nowhere said
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && stride(x.batch_stride) && stride(x.row_stride) &&
         stride(x.head_stride);
}

const char* dout_why_not(const plain::Problem& p, const plain::Operand& dout) {
  return dout.type == p.q.type && copyable(dout) ? "" : "dout is of another type, or not aligned";
}

TileMap map_of(Launches& to, const plain::Operand& x, int64_t B, int64_t rows, int64_t heads, int64_t width, int box) {
  TileMap map{};
  const auto stride = [](int64_t size, int64_t given) { return size == 1 ? int64_t{8} : given; };  // of 1 any will do
  to.fail(make_tile_map(map, x.data, x.type == plain::Type::bfloat16, width, rows, heads, B, stride(rows, x.row_stride),
                        stride(heads, x.head_stride), stride(B, x.batch_stride), box));
  return map;
}

/// Blocks that look for the largest number of a sequence of dout.
int scale_blocks(const plain::Problem& p) {
  return static_cast<int>(std::min(blocks_of(p.T, kScaleRows), blocks_of(kScaleBlocks, p.B)));
}

/// Everything that a pass has in the workspace.
struct Memory {
  char *matrices[2], *loop_mix[2];  // of own queries, of own keys
  float *lse, *row_sums, *dout_scale, *matrix_gradients, *weight_sums;
  int* unsafe;
  void *keys = nullptr, *values = nullptr;  // copies, where there are lengths
  void* general;
  int64_t bytes;

  Memory(const plain::Problem& p, Pass pass, void* memory) {
    Workspace space(memory);
    const int64_t rows[2] = {p.B * padded(p.T), p.B * padded(p.S)}, units = units_of(p);
    const bool back = pass == Pass::backward;
    for (int side = 0; side <= (back ? 1 : 0); ++side) {
      const Mixing mixing = mixing_of(p, side != 0);
      matrices[side] = mixing == Mixing::none ? nullptr : space.take<char>(units * 2 * rows[side] * kMatrixBytes);
      loop_mix[side] = mixing != Mixing::both ? nullptr : space.take<char>(rows[1 - side] / kLoop * 2 * kLoopMixBytes);
    }
    lse = space.take<float>(units * rows[0] * kHeads);
    unsafe = space.take<int>(p.B);
    if (back) {
      row_sums = space.take<float>(rows[0] * kHeads);
      dout_scale = space.take<float>(p.B * (1 + scale_blocks(p)));
      matrix_gradients = space.take<float>(std::max(rows[0], rows[1]) * 2 * kHeads * kHeads);
      weight_sums = space.take<float>(p.B * blocks_of(p.T, kSumEach) * 2 * kHeads * kHeads);
    }
    if (p.key_begin || p.key_end) {
      keys = space.take<uint16_t>(p.B * p.S * p.key_heads * p.D);
      values = space.take<uint16_t>(p.B * p.S * p.value_heads * p.E);
    }
    general = space.take<char>(general::workspace_bytes(p, pass));
    bytes = space.bytes();
  }
};

template <Mixing... kMixings, class Function>
void with_mixing(Mixing mixing, const Function& f) {
  ((mixing == kMixings ? f(std::integral_constant<Mixing, kMixings>()) : void()), ...);
}
template <class Function>
void with_type(const plain::Problem& p, const Function& f) {
  if (p.q.type == plain::Type::bfloat16)
    f(std::true_type());
  else
    f(std::false_type());
}

/// A call whose blocks own queries, or keys.
Call call_of(const plain::Problem& p, const Memory& memory, bool own_keys) {
  Call c{args_of(p)};
  c.own_rows = padded(own_keys ? p.S : p.T), c.loop_rows = padded(own_keys ? p.T : p.S), c.query_rows = padded(p.T);
  c.matrices = memory.matrices[own_keys], c.loop_mix = memory.loop_mix[own_keys];
  c.lse = memory.lse, c.unsafe = memory.unsafe;
  c.factor = c.a.scale * kLog2e / kScoreScale;
  return c;
}

int box_of(int64_t heads) { return static_cast<int>(std::min<int64_t>(heads, kHeads)); }

/// The problem with keys and values that may be read whole.
plain::Problem readable(Launches& to, const plain::Problem& given, const Memory& memory) {
  plain::Problem p = given;
  const auto copy = [&](plain::Operand& x, int64_t heads, int64_t width, void* place) {
    to.flat(copy_readable, p.B * p.S * heads * width / kVector, kFlatThreads,
            Readable{args_of(p), x, static_cast<int>(heads), static_cast<int>(width), place});
    x = {place, x.type, p.S * heads * width, heads * width, width};
  };
  if (!p.key_begin && !p.key_end) return p;
  copy(p.k, p.key_heads, p.D, memory.keys);
  copy(p.v, p.value_heads, p.E, memory.values);
  return p;
}

template <bool kOwnKeys>
void put_pack(Launches& to, const plain::Problem& p, const Memory& memory) {
  const Mixing mixing = mixing_of(p, kOwnKeys);
  Pack pack{args_of(p),
            memory.matrices[kOwnKeys],
            memory.loop_mix[kOwnKeys],
            padded(kOwnKeys ? p.S : p.T),
            padded(kOwnKeys ? p.T : p.S),
            units_of(p)};
  pack.pre_factor = pack.a.scale * kLog2e / kScoreScale;
  if (mixing != Mixing::none)
    to.flat(pack_matrices<kOwnKeys>, int64_t{2} * pack.units * p.B * pack.own_rows * kHeads, kFlatThreads, pack);
  if (mixing == Mixing::both)
    to.flat(pack_loop<kOwnKeys>, p.B * pack.loop_rows / kLoop * 2 * 5 * 32, kFlatThreads, pack);
}

/// lse [B,Ha,T] as the kernels keep it; and no sequence is unsafe yet.
struct Keep {
  Args a;
  const float* lse;  // null: none
  float* to;
  int* unsafe;
  int query_rows;
};
MOTET_KERNEL(kFlatThreads)
keep_lse(const MOTET_PARAMETER Keep k) {
  const int64_t x = static_cast<int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x;
  if (x < k.a.B) k.unsafe[x] = 0;
  if (!k.lse) return;
  const int head = x % kHeads, t = x / kHeads % k.query_rows, b = static_cast<int>(x / kHeads / k.query_rows);
  if (b >= k.a.B) return;
  const float lse = t < k.a.T && head < k.a.softmax_heads
                        ? k.lse[(static_cast<int64_t>(b) * k.a.softmax_heads + head) * k.a.T + t]
                        : 0;
  k.to[x] = lse == -INFINITY ? 0 : lse * kLog2e;
}

void put_scale(Launches& to, const plain::Problem& p, const Memory& memory, const plain::Operand& dout) {
  Scale scale{dout, static_cast<int>(p.T), static_cast<int>(p.output_heads), static_cast<int>(p.E), scale_blocks(p)};
  scale.scale = memory.dout_scale, scale.largest = memory.dout_scale + p.B;
  to.run(find_largest, p.B * scale.blocks, 1, kFlatThreads, kFlatThreads * 4, scale);
  to.run(scale_dout, p.B, 1, kFlatThreads, kFlatThreads * 4, scale);
}

void put_log_sums(Launches& to, const plain::Problem& p, const Memory& memory, float* lse_out) {
  Call c = call_of(p, memory, false);
  c.loop_box = box_of(p.key_heads), c.lse_out = lse_out;
  c.loop = map_of(to, p.k, p.B, p.S, p.key_heads, p.D, c.loop_box);
  with_type(p, [&](auto type) {
    with_mixing<Mixing::none, Mixing::own, Mixing::both>(mixing_of(p, false), [&](auto mixing) {
      to.run(log_sums<decltype(type)::value, decltype(mixing)::value>, p.B * (c.query_rows / kSumRows), units_of(p),
             kSumThreads, SumMemory::bytes, c);
    });
  });
}

/// Outputs; with kOwnKeys dV.
template <bool kOwnKeys>
void put_weigh(Launches& to, const plain::Problem& p, const Memory& memory, const plain::Operand& carried, void* out) {
  Call c = call_of(p, memory, kOwnKeys);
  const plain::Operand& loop = kOwnKeys ? p.q : p.k;
  const int64_t heads = kOwnKeys ? p.score_heads : p.key_heads, values = kOwnKeys ? p.output_heads : p.value_heads;
  const int64_t rows = kOwnKeys ? p.T : p.S;
  c.loop_box = box_of(heads), c.value_box = box_of(values), c.out = out;
  c.loop = map_of(to, loop, p.B, rows, heads, p.D, c.loop_box);
  c.value = map_of(to, carried, p.B, rows, values, p.E, c.value_box);
  const int z = units_of(p) * static_cast<int>(blocks_of(p.E, kWidth));
  const int64_t blocks = p.B * blocks_of(kOwnKeys ? p.S : p.T, kWeighRows);
  with_type(p, [&](auto type) {
    with_mixing<Mixing::own, Mixing::both>(mixing_of(p, kOwnKeys), [&](auto mixing) {
      to.run(weigh<decltype(type)::value, decltype(mixing)::value, kOwnKeys>, blocks, z, kWeighThreads,
             WeighMemory::bytes, c);
    });
    if constexpr (!kOwnKeys)
      if (mixing_of(p, false) == Mixing::none)
        to.run(weigh<decltype(type)::value, Mixing::none, false>, blocks, z, kWeighThreads, WeighMemory::bytes, c);
  });
}

void put_row_sums(Launches& to, const plain::Problem& p, const Memory& memory, const Incoming& from) {
  Call c = call_of(p, memory, false);
  c.a.dout = from.dout, c.dout_scale = memory.dout_scale, c.row_sums = memory.row_sums;
  c.loop_box = box_of(p.key_heads), c.value_box = box_of(p.value_heads);
  c.loop = map_of(to, p.k, p.B, p.S, p.key_heads, p.D, c.loop_box);
  c.value = map_of(to, p.v, p.B, p.S, p.value_heads, p.E, c.value_box);
  with_type(p, [&](auto type) {
    with_mixing<Mixing::own, Mixing::both>(mixing_of(p, false), [&](auto mixing) {
      to.run(row_sums<decltype(type)::value, decltype(mixing)::value>, p.B * blocks_of(p.T, kRowSumRows), 1,
             kRowSumThreads, RowSumMemory::bytes, c);
    });
  });
}

WeightSum weight_sum_of(const plain::Problem& p, const Memory& memory, const Gradients& gradients) {
  WeightSum sum{args_of(p),
                memory.matrix_gradients,
                memory.weight_sums,
                padded(p.T),
                static_cast<int>(blocks_of(p.T, kSumEach)),
                memory.unsafe};
  sum.to[0] = gradients.pre[kWeight], sum.to[1] = gradients.post[kWeight];
  return sum;
}

/// Gradients of one side's rows and mixes; those of the static weights are summed, not joined.
template <bool kOwnKeys>
void put_gradients(Launches& to, const plain::Problem& p, const Memory& memory, const Incoming& from,
                   const Gradients& gradients) {
  Call c = call_of(p, memory, kOwnKeys);
  c.a.dout = from.dout, c.dout_scale = memory.dout_scale, c.row_sums = memory.row_sums;
  c.matrix_gradients = memory.matrix_gradients, c.out = kOwnKeys ? gradients.k : gradients.q;
  const int64_t rows = kOwnKeys ? p.T : p.S, heads = kOwnKeys ? p.score_heads : p.key_heads;
  const int64_t values = kOwnKeys ? p.output_heads : p.value_heads;
  c.loop_box = box_of(heads), c.value_box = box_of(values);
  c.loop = map_of(to, kOwnKeys ? p.q : p.k, p.B, rows, heads, p.D, c.loop_box);
  c.value = map_of(to, kOwnKeys ? from.dout : p.v, p.B, rows, values, p.E, c.value_box);
  with_type(p, [&](auto type) {
    with_mixing<Mixing::own, Mixing::both>(mixing_of(p, kOwnKeys), [&](auto mixing) {
      to.run(gradients_of<decltype(type)::value, decltype(mixing)::value, kOwnKeys>,
             p.B * blocks_of(kOwnKeys ? p.S : p.T, kGradientRows), 1, kGradientThreads, GradientMemory::bytes, c);
    });
  });
  Split split{c.a, memory.matrix_gradients, c.own_rows};
  std::copy(gradients.pre.begin(), gradients.pre.end(), split.to[0]);
  std::copy(gradients.post.begin(), gradients.post.end(), split.to[1]);
  to.flat(split_matrices<kOwnKeys>, p.B * (kOwnKeys ? p.S : p.T) * 2 * kHeads, kFlatThreads, split);
  const WeightSum sum = weight_sum_of(p, memory, gradients);
  if (!kOwnKeys && sum.any()) to.run(sum_weights, p.B * sum.blocks, 2, kFlatThreads, 0, sum);
}

}  // namespace

const char* why_not(const plain::Problem& p, Pass pass) {
  const bool back = pass == Pass::backward;
  if (!has_tensor_copies()) return "the GPU is not of compute capability 9";
  if (pass != Pass::forward && !back) return "two-phase forms are the general kernels'";
  if (p.q.type == plain::Type::float32 || p.k.type != p.q.type || p.v.type != p.q.type)
    return "not all inputs are of one 16-bit type";
  if (p.T <= kLoop) return "few queries";
  if (p.D > kWidth || (back && p.E > kWidth)) return "a width beyond 64";
  if (p.D % 8 || p.E % 8 || !copyable(p.q) || !copyable(p.k) || !copyable(p.v))
    return "rows that do not lie at multiples of 16 bytes of their own";
  const bool units = !p.pre.any_part() && !p.post.any_part();
  const int64_t heads = std::max({p.score_heads, p.softmax_heads, p.output_heads});
  if (!units && heads > kHeads) return "a mix of more than 16 heads";
  for (const plain::HeadMix* mix : {&p.pre, &p.post}) {
    if (mix->has(kKeyFull) || (back && mix->has(kQueryFull))) return "a full-rank part on the walked side";
    if ((mix->has(kKeyDown) && mix->key_rank > kRank) || (back && mix->has(kQueryDown) && mix->query_rank > kRank))
      return "ranks beyond 2";
  }
  const int64_t outputs = p.pairs.lambda ? kHeads / 2 : kHeads;
  if (!contiguous_groups(p.key_of, kHeads) || !contiguous_groups(p.value_of, outputs))
    return "head tables in another order";
  if (!back) return "";
  if (mixing_of(p, false) == Mixing::none) return "nothing is mixed";
  if (p.pairs.lambda) return "pairs";
  if (!each_its_own(p.key_of, p.key_heads) || !each_its_own(p.value_of, p.value_heads)) return "shared heads";
  return "";
}

int64_t workspace_bytes(const plain::Problem& p, Pass pass) { return Memory(p, pass, nullptr).bytes; }

const char* forward(const plain::Problem& given, const Output& to, const Runtime& run) {
  const Memory memory(given, Pass::forward, run.workspace);
  Launches launches(run.stream);
  const plain::Problem p = readable(launches, given, memory);
  launches.flat(keep_lse, p.B, kFlatThreads, Keep{args_of(p), nullptr, nullptr, memory.unsafe});
  put_pack<false>(launches, p, memory);
  put_log_sums(launches, p, memory, to.lse);
  put_weigh<false>(launches, p, memory, p.v, to.out);
  if (launches.error()) return launches.error();
  return general::forward(p, to, {memory.general, run.stream}, memory.unsafe);
}

const char* backward(const plain::Problem& given, const Incoming& from, const Gradients& to, const Runtime& run) {
  if (*dout_why_not(given, from.dout)) return general::backward(given, from, to, run);
  const Memory memory(given, Pass::backward, run.workspace);
  Launches launches(run.stream);
  const plain::Problem p = readable(launches, given, memory);
  launches.flat(keep_lse, int64_t{p.B} * padded(p.T) * kHeads, kFlatThreads,
                Keep{args_of(p), from.lse, memory.lse, memory.unsafe, padded(p.T)});
  put_scale(launches, p, memory, from.dout);
  put_pack<false>(launches, p, memory);
  put_pack<true>(launches, p, memory);
  put_row_sums(launches, p, memory, from);
  put_gradients<false>(launches, p, memory, from, to);
  put_gradients<true>(launches, p, memory, from, to);
  if (to.v) put_weigh<true>(launches, p, memory, from.dout, to.v);
  const WeightSum sum = weight_sum_of(p, memory, to);
  if (sum.any()) launches.run(join_weights, 1, 2, kFlatThreads, 0, sum);
  if (launches.error()) return launches.error();
  return general::backward(p, from, to, {memory.general, run.stream}, memory.unsafe);
}

}  // namespace motet::cuda::tensor
