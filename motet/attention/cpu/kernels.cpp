// The kernels, compiled once for each instruction set, and the choice between them.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "motet/attention/cpu/kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "motet/attention/cpu/problem.h"
#include "motet/core/instructions.h"

#if HWY_TARGET <= HWY_AVX2  // Highway's baseline, below AVX2, has no kernels
#include "motet/attention/cpu/decode-inl.h"
#include "motet/attention/cpu/online-inl.h"
#include "motet/attention/cpu/row_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

Status forward(const Problem& p, const Output& to, const Runtime& runtime, bool pairs) {
  const Call call(p, runtime, pairs);
  if (call.plan.forward == Skeleton::decode) return run_decode(call, to);
  if (call.plan.forward == Skeleton::online) return run_online_forward(call, to);
  return run_row_forward(call, Form::attend, to, nullptr);
}

Status backward(const Problem& p, const Incoming& from, const Gradients& to, const Runtime& runtime, bool pairs) {
  const Call call(p, runtime, pairs);
  // One pass over the keys needs sum P dP = dout . out, and a 16-bit out is too coarse for that.
  const bool mixed = call.plan.pre != MixKind::none || call.plan.post != MixKind::none;
  const bool online = !mixed && p.q.type == Type::float32;
  return online ? run_backward<OnlineBackward>(call, from, to) : run_backward<RowBackward>(call, from, to);
}

Status lse(const Problem& p, float* to, const Runtime& runtime, bool pairs) {
  return run_row_forward(Call(p, runtime, pairs), Form::lse, {nullptr, to}, nullptr);
}

Status given_lse(const Problem& p, const float* lse, void* out, const Runtime& runtime, bool pairs) {
  return run_row_forward(Call(p, runtime, pairs), Form::given_lse, {out, nullptr}, lse);
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
#include <new>

namespace motet::cpu {
namespace {

bool has(Instructions wanted) {
  switch (wanted) {
    case Instructions::avx512:
      return has_avx512();
    case Instructions::avx512_bf16:
      return has_avx512() && __builtin_cpu_supports("avx512bf16");
    default:
      return has_avx2();
  }
}

// Runs a kernel with the instructions that the runtime asks for; the kernels allocate only before they start.
template <class Avx2, class Avx512>
Status run(const Runtime& runtime, Avx2 avx2, Avx512 avx512) {
  if (!has(runtime.instructions)) return Status::no_instructions;
  const bool best = runtime.instructions == Instructions::best;
  const bool wide = best ? has(Instructions::avx512) : runtime.instructions != Instructions::avx2;
  const bool pairs = best ? has(Instructions::avx512_bf16) : runtime.instructions == Instructions::avx512_bf16;
  try {
    return wide ? avx512(pairs) : avx2(false);
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory;
  }
}

}  // namespace

std::vector<Instructions> available_instructions() {
  std::vector<Instructions> all;
  for (const Instructions one : {Instructions::avx2, Instructions::avx512, Instructions::avx512_bf16})
    if (has(one)) all.push_back(one);
  return all;
}

const char* name(Instructions instructions) {
  constexpr const char* kNames[] = {"best", "AVX2", "AVX-512", "AVX-512 with bf16"};
  return kNames[static_cast<int>(instructions)];
}

Status forward(const Problem& p, const Output& to, const Runtime& r) {
  return run(
      r, [&](bool pairs) { return N_AVX2::forward(p, to, r, pairs); },
      [&](bool pairs) { return N_AVX3::forward(p, to, r, pairs); });
}

Status backward(const Problem& p, const Incoming& from, const Gradients& to, const Runtime& r) {
  return run(
      r, [&](bool pairs) { return N_AVX2::backward(p, from, to, r, pairs); },
      [&](bool pairs) { return N_AVX3::backward(p, from, to, r, pairs); });
}

Status lse(const Problem& p, float* to, const Runtime& r) {
  return run(
      r, [&](bool pairs) { return N_AVX2::lse(p, to, r, pairs); },
      [&](bool pairs) { return N_AVX3::lse(p, to, r, pairs); });
}

Status given_lse(const Problem& p, const float* lse, void* out, const Runtime& r) {
  return run(
      r, [&](bool pairs) { return N_AVX2::given_lse(p, lse, out, r, pairs); },
      [&](bool pairs) { return N_AVX3::given_lse(p, lse, out, r, pairs); });
}

}  // namespace motet::cpu
#endif
