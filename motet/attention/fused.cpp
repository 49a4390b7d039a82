// The fused CPU kernels (cpu/) as a row of the kernel table: tensors in, plain numbers out.
#include "motet/attention/fused.h"

#include "motet/attention/cpu/workspace.h"
#include "motet/ops/threads.h"

namespace motet {
namespace {

std::string why_not(const Problem& p) {
  if (!p.q_BTHD.is_cpu()) return "only on the CPU";
  if (p.q_BTHD.scalar_type() == at::kDouble) return "float64 stays on the plain paths";
  if (p.bias_BHTS.defined()) return "there is a bias";
  if (p.B == 0 || p.T == 0 || p.S == 0 || p.E == 0) return "empty";
  if (cpu::available_instructions().empty()) return "this CPU has no AVX2";
  return "";
}

// Parts are copied by number: both tables must count them alike.
static_assert(cpu::kWeight == kWeight && cpu::kNumParts == kNumMixParts);
static_assert(cpu::kQueryDown == kQueryDown);
static_assert(cpu::kQueryUp == kQueryUp);
static_assert(cpu::kQueryGate == kQueryGate);
static_assert(cpu::kQueryFull == kQueryFull);
static_assert(cpu::kKeyDown == kKeyDown);
static_assert(cpu::kKeyUp == kKeyUp);
static_assert(cpu::kKeyGate == kKeyGate);
static_assert(cpu::kKeyFull == kKeyFull);

cpu::Type type_of(const Tensor& t) {
  return t.scalar_type() == at::kFloat      ? cpu::Type::float32
         : t.scalar_type() == at::kBFloat16 ? cpu::Type::bfloat16
                                            : cpu::Type::float16;
}

// The plain form of a problem, with the tensors that it points into.
struct Plain {
  cpu::Problem p;
  std::vector<Tensor> keep;

  explicit Plain(const Problem& from) {
    p.B = from.B, p.T = from.T, p.S = from.S, p.D = from.D, p.E = from.E;
    p.score_heads = from.score_heads, p.softmax_heads = from.softmax_heads, p.output_heads = from.output_heads;
    p.key_heads = from.k_BSGD.size(2), p.value_heads = from.v_BSGE.size(2);
    p.q = operand(from.q_BTHD), p.k = operand(from.k_BSGD), p.v = operand(from.v_BSGE);
    p.key_of = from.key_of, p.value_of = from.value_of;
    p.pre = mix(from.pre), p.post = mix(from.post);
    if (from.lambda.defined()) p.pairs = pairs(from.lambda);
    p.scale = from.scale, p.causal = from.causal, p.window = from.window;
    const int64_t** tables[kNumTables] = {&p.query_start, &p.key_begin, &p.key_end, &p.documents};
    for (int i = 0; i < kNumTables; ++i)
      if (from.table[i].defined())
        *tables[i] = hold(from.table[i].to(at::kLong).contiguous()).const_data_ptr<int64_t>();
  }

  const Tensor& hold(Tensor t) { return keep.emplace_back(std::move(t)); }

  cpu::Operand operand(const Tensor& x) {
    const Tensor& t = hold(x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous());
    return {t.const_data_ptr(), type_of(t), t.stride(0), t.stride(1), t.stride(2)};
  }

  // float32, contiguous within a sequence: a slice of a cache along dimension 1 is not copied.
  cpu::MixTensor mix_tensor(const Tensor& given) {
    Tensor t = given.to(at::kFloat);
    const bool inside = t.dim() == 2 ? t.is_contiguous() : t.size(0) == 0 || t.select(0, 0).is_contiguous();
    if (!inside) t = t.contiguous();
    hold(t);
    return {t.const_data_ptr<float>(), t.stride(0)};
  }

  cpu::HeadMix mix(const HeadMix& from) {
    cpu::HeadMix to;
    to.identity = from.identity;
    for (int i = 0; i < kNumMixParts; ++i)
      if (from.has(i)) to.part[i] = mix_tensor(from.part[i]);
    if (from.has(kQueryDown)) to.query_rank = from.part[kQueryDown].size(2);
    if (from.has(kKeyDown)) to.key_rank = from.part[kKeyDown].size(2);
    return to;
  }

  cpu::Pairs pairs(const Tensor& lambda) {
    const Tensor& t = hold(lambda.to(at::kFloat).contiguous());
    cpu::Pairs to{t.const_data_ptr<float>()};
    if (t.dim() >= 1) to.head_stride = 1;
    if (t.dim() == 3) to.row_stride = t.size(2), to.batch_stride = t.size(1) * t.size(2);
    return to;
  }
};

void check(cpu::Status status) {
  TORCH_CHECK(status == cpu::Status::ok, "composed_attention: out of memory in the fused kernel");
}

Tensor empty_lse(const Problem& p) {
  return at::empty({p.B, p.softmax_heads, p.T}, p.q_BTHD.options().dtype(at::kFloat));
}
Tensor empty_out(const Problem& p) { return at::empty({p.B, p.T, p.output_heads, p.E}, p.q_BTHD.options()); }

Tensor lse(const Problem& p) {
  const Tensor lse_BHT = empty_lse(p);
  check(cpu::lse(Plain(p).p, lse_BHT.mutable_data_ptr<float>(), {torch_threads()}));
  return lse_BHT;
}

Tensor given_lse(const Problem& p, const Tensor& lse_BHT) {
  const Tensor out_BTHE = empty_out(p), given = lse_BHT.to(at::kFloat).contiguous();
  check(cpu::given_lse(Plain(p).p, given.const_data_ptr<float>(), out_BTHE.mutable_data_ptr(), {torch_threads()}));
  return out_BTHE;
}

}  // namespace

void release_fused_memory() { cpu::release_workspaces(); }

Attended fused_forward(const Problem& p, const cpu::Runtime& runtime) {
  Attended done{empty_out(p), empty_lse(p)};
  check(cpu::forward(Plain(p).p, {done.out_BTHE.mutable_data_ptr(), done.lse_BHT.mutable_data_ptr<float>()}, runtime));
  return done;
}

// Gradients in float32, in the shapes of the inputs; lambda's is summed to its shape and all take their dtype at the
// end.
Gradients fused_backward(const Problem& p, const Backward& b, const cpu::Runtime& runtime) {
  const auto make = [&](const Tensor& like) { return at::empty(like.sizes(), like.options().dtype(at::kFloat)); };
  Gradients g;
  cpu::Gradients to;
  const auto want = [&](int index, const Tensor& like, float*& pointer) {
    if (!b.wanted[index]) return;
    g[index] = make(like);
    pointer = g[index].mutable_data_ptr<float>();
  };
  want(kQ, p.q_BTHD, to.q), want(kK, p.k_BSGD, to.k), want(kV, p.v_BSGE, to.v);
  for (int i = 0; i < kNumMixParts; ++i) {
    if (p.pre.has(i)) want(kPre + i, p.pre.part[i], to.pre[i]);
    if (p.post.has(i)) want(kPost + i, p.post.part[i], to.post[i]);
  }
  if (b.wanted[kLambda]) {
    g[kLambda] = at::empty({p.B, p.T, p.output_heads}, p.q_BTHD.options().dtype(at::kFloat));
    to.lambda = g[kLambda].mutable_data_ptr<float>();
  }
  Plain plain(p);
  const cpu::Incoming from{plain.operand(b.dout_BTHE), plain.operand(b.out_BTHE),
                           plain.hold(b.lse_BHT.to(at::kFloat).contiguous()).const_data_ptr<float>()};
  check(cpu::backward(plain.p, from, to, runtime));

  const auto finish = [&](int index, const Tensor& like) {
    if (g[index].defined()) g[index] = g[index].to(like.scalar_type());
  };
  if (b.wanted[kLambda]) g[kLambda] = at::sum_to(g[kLambda].to(at::kDouble), p.lambda.sizes());
  finish(kQ, p.q_BTHD), finish(kK, p.k_BSGD), finish(kV, p.v_BSGE), finish(kLambda, p.lambda);
  for (int i = 0; i < kNumMixParts; ++i) finish(kPre + i, p.pre.part[i]), finish(kPost + i, p.post.part[i]);
  return g;
}

const Kernel kFused{"fused",
                    why_not,
                    [](const Problem& p) { return fused_forward(p, {torch_threads()}); },
                    [](const Problem& p, const Backward& b) { return fused_backward(p, b, {torch_threads()}); },
                    lse,
                    given_lse};

}  // namespace motet
