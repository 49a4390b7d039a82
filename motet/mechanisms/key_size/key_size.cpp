#include "motet/mechanisms/key_size/key_size.h"

namespace motet {
namespace {

struct KeySizeOptions {
  int64_t key_dim = 0, value_dim = 0;
};

const Fields<KeySizeOptions>& options() {
  static const Fields<KeySizeOptions> table{
      {"key_dim", &KeySizeOptions::key_dim, {0, 4096}, "width of queries and keys; 0 = twice head_dim"},
      {"value_dim", &KeySizeOptions::value_dim, {0, 4096}, "width of values; 0 = head_dim"}};
  return table;
}

HeadSizes sizes(const Setting& s) {
  const int64_t heads = s.options.common.num_heads, kv = num_kv_heads(s);
  const auto [key_dim, value_dim] = options().read(s.options.all);
  return {.query_heads = heads,
          .softmax_heads = heads,
          .key_heads = kv,
          .value_heads = kv,
          .output_heads = heads,
          .key_dim = key_dim > 0 ? key_dim : 2 * head_dim(s),
          .value_dim = value_dim > 0 ? value_dim : head_dim(s)};
}

}  // namespace

KeySizeAttention::KeySizeAttention(const Setting& s) : Projected(s, sizes(s)) {}

MechanismEntry key_size_entry() {
  return {.name = "key_size",
          .summary = "queries and keys wider than values (low-rank bottleneck)",
          .options = options().table(),
          .presets = {{"key_size", true, {{"mechanism", "key_size"}}}},
          .make = [](const Setting& s) -> std::shared_ptr<Mechanism> { return std::make_shared<KeySizeAttention>(s); }};
}

}  // namespace motet
