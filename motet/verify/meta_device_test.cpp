// Every mechanism and block on the device `meta`: a tensor that stays on the CPU by mistake meets one that is not,
// which most of torch's functions and all of ours refuse. So what would stop a GPU stops here, without one.
#include <gtest/gtest.h>

#include "motet/generate/cache.h"
#include "motet/mechanisms/contender.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

using namespace testing;

std::vector<std::string> variants() {
  std::vector<std::string> all = contender_names();
  for (const char* more :
       {"dcmha:groups=2", "dcmha:static=true", "talking_heads:dynamic=both", "mha:bias=true", "mha:qk_norm=true",
        "mha:num_kv_heads=2", "mha:window=4", "mha:position_bias=alibi:rope_fraction=0", "mha:position_bias=relative",
        "mha:rope_scaling=llama3:rope_factor=8", "mha:rope_scaling=dynamic:rope_factor=2:rope_trained_length=4",
        "mha:rope_scaling=linear:rope_factor=2", "mha:rope_pairing=interleaved"})
    all.push_back(more);
  return all;
}

// Shapes of functions that torch's C++ has no meta kernel for (its Python has).
Tensor selected(const Tensor& t, int64_t dim, const Tensor& index) {
  std::vector<int64_t> shape = t.sizes().vec();
  shape[static_cast<size_t>(at::maybe_wrap_dim(dim, t.dim()))] = index.numel();
  TORCH_CHECK(index.is_meta(), "index_select: index is on ", index.device());
  return at::empty(shape, t.options());
}
Tensor embedded_backward(const Tensor& gradient, const Tensor& ids, int64_t rows, int64_t, bool) {
  TORCH_CHECK(ids.is_meta(), "embedding_dense_backward: ids is on ", ids.device());
  return at::empty({rows, gradient.size(-1)}, gradient.options());
}
Tensor& magnitude(const Tensor& t, Tensor& to) { return at::threshold_out(to, t, 0, 0); }
using Three = std::tuple<Tensor, Tensor, Tensor>;
Three normed(const Tensor& x, at::IntArrayRef, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
             double) {
  TORCH_CHECK(weight->is_meta() && bias->is_meta(), "native_layer_norm: weight and bias are on other devices");
  const Tensor rows = at::empty(x.sizes().slice(0, x.dim() - 1), x.options()).unsqueeze(-1);
  return {at::empty(x.sizes(), x.options()), rows, rows};
}
Three normed_backward(const Tensor& dy, const Tensor& x, at::IntArrayRef, const Tensor&, const Tensor&,
                      const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, std::array<bool, 3>) {
  TORCH_CHECK(dy.is_meta() && x.is_meta(), "native_layer_norm_backward: operands are on other devices");
  return {at::empty_like(x), at::empty_like(*weight), at::empty_like(*bias)};
}
TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("index_select", selected);
  m.impl("embedding_dense_backward", embedded_backward);
  m.impl("abs.out", magnitude);
  m.impl("native_layer_norm", normed);
  m.impl("native_layer_norm_backward", normed_backward);
  m.impl("_cummax_helper", [](const Tensor&, Tensor&, Tensor&, int64_t) {});
}

const at::TensorOptions kAway = at::TensorOptions(at::kLong).device(at::kMeta);

TEST(Device, EveryMechanismAndBlockTrainsOnOneDevice) {
  for (const char* block : {"sequential", "parallel", "sequential_layer_norm"})
    for (const std::string& name : variants()) {
      SCOPED_TRACE(name + " " + block);
      const Model model(tiny({{"block", block}, {"num_layers", 2}}, parse_contender(name, "")), at::kMeta);
      EXPECT_TRUE(model.ptr()->device().is_meta());
      for (const Tensor& documents : {Tensor(), at::empty({2, 8}, kAway)}) {
        const Tensor logits = model.ptr()->forward(at::empty({2, 8}, kAway), documents);
        EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{2, 8, 11}));
        ops::token_loss(logits, at::empty({2, 8}, kAway)).backward();
        for (const auto& item : model.ptr()->named_parameters())
          EXPECT_TRUE(item.value().grad().defined() && item.value().grad().is_meta()) << item.key();
      }
    }
}

TEST(Device, EveryMechanismDecodesOnOneDevice) {
  for (const std::string& name : variants())
    for (const CacheType type : {CacheType::model, CacheType::bfloat16, CacheType::int8})
      for (const bool compact : {false, true}) {
        SCOPED_TRACE(name);
        const Model model(tiny({}, parse_contender(name, "")), at::kMeta);
        Cache cache(model.ptr()->config(), 12, {0, 2}, {.type = type, .compact = compact});
        for (const int64_t count : {5, 1, 1}) {
          const Tensor hidden = cache.step(*model.ptr(), at::empty({2, count}, kAway), 12);
          EXPECT_TRUE(hidden.is_meta());
          EXPECT_EQ(hidden.sizes(), (std::vector<int64_t>{2, count, 16}));
        }
      }
}

TEST(Device, ScoringsOwnWayThroughTheLayersKeepsTheDevice) {
  const Model model(tiny({}, parse_contender("dcmha", "")), at::kMeta);
  EXPECT_TRUE(model.ptr()->attention_inputs(at::empty({1, 4}, kAway)).back().is_meta());
  EXPECT_TRUE(model.ptr()->hidden(at::empty({1, 4}, kAway)).is_meta());
}

}  // namespace
}  // namespace motet
