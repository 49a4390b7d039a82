// The kernels, compiled once for each instruction set, and the choice between them.
#include "motet/core/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "motet/attention/cpu/kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "motet/attention/cpu/problem.h"
#include "motet/core/instructions.h"

#if HWY_TARGET <= HWY_AVX2 || !HWY_ARCH_X86  // Highway's baseline on x86, below AVX2, has no kernels
#include "motet/attention/cpu/decode-inl.h"
#include "motet/attention/cpu/online-inl.h"
#include "motet/attention/cpu/row_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

Status forward(const Problem& p, const Output& to, const Runtime& runtime, Multiplier unit) {
  if (decodes(p)) return run_decode(Call(p, runtime, unit, {.pre = pre_kind(p), .post = post_kind(p)}), to);
  const Call call(p, runtime, unit);
  if (call.plan.mixed()) return run_row_forward(call, Form::attend, to, nullptr);
  return run_online_forward(call, to);
}

Status backward(const Problem& p, const Incoming& from, const Gradients& to, const Runtime& runtime, Multiplier unit) {
  const Call call(p, runtime, unit);
  // One pass over the keys needs sum P dP = dout . out, and a 16-bit out is too coarse for that.
  const bool online = !call.plan.mixed() && p.q.type == Type::float32;
  return online ? run_backward<OnlineBackward>(call, from, to) : run_backward<RowBackward>(call, from, to);
}

Status lse(const Problem& p, float* to, const Runtime& runtime, Multiplier unit) {
  return run_row_forward(Call(p, runtime, unit), Form::lse, {nullptr, to}, nullptr);
}

Status given_lse(const Problem& p, const float* lse, void* out, const Runtime& runtime, Multiplier unit) {
  return run_row_forward(Call(p, runtime, unit), Form::given_lse, {out, nullptr}, lse);
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
#include <new>

namespace motet::cpu {
namespace {

// The kernels as one of their compilations has them.
struct Compiled {
  Status (*forward)(const Problem&, const Output&, const Runtime&, Multiplier);
  Status (*backward)(const Problem&, const Incoming&, const Gradients&, const Runtime&, Multiplier);
  Status (*lse)(const Problem&, float* lse, const Runtime&, Multiplier);
  Status (*given_lse)(const Problem&, const float* lse, void* out, const Runtime&, Multiplier);
};

struct Row {
  Instructions instructions;
  std::string (*why_not)();  // "": this CPU can
  Compiled kernels;
  Multiplier unit;
  bool by_name = false;  // never the best one
};

#if HWY_ARCH_X86
#define MOTET_COMPILED(target) {target::forward, target::backward, target::lse, target::given_lse}
template <bool (*has)()>
std::string lacks() {
  return has() ? "" : "this CPU lacks them";
}
const Row kTable[] = {  // worst first
    {Instructions::avx2, lacks<has_avx2>, MOTET_COMPILED(N_AVX2), Multiplier::floats},
    {Instructions::avx512, lacks<has_avx512>, MOTET_COMPILED(N_AVX3), Multiplier::floats},
    {Instructions::avx512_bf16, lacks<has_avx512_bf16>, MOTET_COMPILED(N_AVX3), Multiplier::pairs},
    {Instructions::amx, why_not_amx, MOTET_COMPILED(N_AVX3), Multiplier::tiles, true},
    {Instructions::emulated_amx, lacks<has_avx2>, MOTET_COMPILED(N_AVX2), Multiplier::emulated_tiles, true},
    {Instructions::emulated_amx, lacks<has_avx512>, MOTET_COMPILED(N_AVX3), Multiplier::emulated_tiles, true}};
#else
std::string always() { return ""; }
#define MOTET_COMPILED                                                                    \
  {HWY_STATIC_DISPATCH(forward), HWY_STATIC_DISPATCH(backward), HWY_STATIC_DISPATCH(lse), \
   HWY_STATIC_DISPATCH(given_lse)}
const Row kTable[] = {{Instructions::neon, always, MOTET_COMPILED, Multiplier::floats},
                      {Instructions::emulated_amx, always, MOTET_COMPILED, Multiplier::emulated_tiles, true}};
#endif

// Runs a kernel with the instructions that the runtime asks for; the kernels allocate only before they start.
template <class Kernel>
Status run(const Runtime& runtime, const Kernel& kernel) {
  const Row* chosen = nullptr;
  for (const Row& row : kTable)
    if ((runtime.instructions == row.instructions || (runtime.instructions == Instructions::best && !row.by_name)) &&
        row.why_not().empty())
      chosen = &row;
  if (!chosen) return Status::no_instructions;
  try {
    return kernel(chosen->kernels, chosen->unit);
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory;
  }
}

}  // namespace

std::vector<Instructions> available_instructions() {
  std::vector<Instructions> all;
  for (const Row& row : kTable)
    if (row.instructions != Instructions::emulated_amx && row.why_not().empty()) all.push_back(row.instructions);
  return all;
}

std::string why_not(Instructions instructions) {
  std::string reason = "they are of another kind of CPU";
  for (const Row& row : kTable)
    if (row.instructions == instructions || (instructions == Instructions::best && !row.by_name)) {
      reason = row.why_not();
      if (reason.empty()) break;
    }
  return reason;
}

const char* name(Instructions instructions) {
  constexpr const char* kNames[] = {"best", "NEON", "AVX2", "AVX-512", "AVX-512 with bf16", "AMX", "emulated AMX"};
  return kNames[static_cast<int>(instructions)];
}

Status forward(const Problem& p, const Output& to, const Runtime& r) {
  return run(r, [&](const Compiled& k, Multiplier unit) { return k.forward(p, to, r, unit); });
}

Status backward(const Problem& p, const Incoming& from, const Gradients& to, const Runtime& r) {
  return run(r, [&](const Compiled& k, Multiplier unit) { return k.backward(p, from, to, r, unit); });
}

Status lse(const Problem& p, float* to, const Runtime& r) {
  return run(r, [&](const Compiled& k, Multiplier unit) { return k.lse(p, to, r, unit); });
}

Status given_lse(const Problem& p, const float* lse, void* out, const Runtime& r) {
  return run(r, [&](const Compiled& k, Multiplier unit) { return k.given_lse(p, lse, out, r, unit); });
}

}  // namespace motet::cpu
#endif
