#include "motet/checkpoints/convert.h"
#include "motet/core/error.h"

namespace motet {
namespace {

using Load = std::function<Tensor()>;

// Tensors whose rows (or entries) are in the order of rotary dimensions, and how many heads they have.
int64_t rotary_heads(const ModelConfig& c, const std::string& name) {
  const bool second = c.attention.value("version", "") == "v2";
  const int64_t heads = c.attention.at("num_heads").get<int64_t>() * (second ? 2 : 1);
  const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (is(".self_attn.q_proj.")) return heads;
  if (is(".self_attn.k_proj.")) return kv_heads(c);
  return is(".self_attn.q_norm.") || is(".self_attn.k_norm.") ? 1 : 0;
}

void pair_rotary_dimensions(Adaptation& a, const std::string& pairing) {
  std::string own = a.config.attention.at("rope_pairing");
  if (own == pairing || a.config.learned_positions() || a.config.attention.at("mechanism") == "coca") return;
  if (a.config.attention.at("rope_fraction") != 1.0)
    fail("attention.rope_pairing = ", own, ": rotary dimensions are paired anew only where whole heads rotate");
  a.config.attention["rope_pairing"] = pairing;
  for (auto& [name, load] : a.tensors) {
    const int64_t heads = rotary_heads(a.config, name);
    if (heads == 0) continue;
    const Row row{name, {name}, Order::interleaved, heads};
    load = [old = load, row, half = pairing == "half"] { return half ? row.taken(old())[0] : row.given({old()}); };
  }
}

// (1 - lambda_init) * weight * normed . W = (1 - lambda_init) * normed . (W with column c of each head * weight[c]).
void weigh_head_norm(Adaptation& a, const std::string& kind) {
  const std::string own = a.config.attention.value("head_norm", "");
  if (kind.empty() || own == kind || a.config.attention.value("version", "") != "v1") return;
  if (own == "none") return;  // said by check_same_function
  const int64_t heads = a.config.attention.at("num_heads").get<int64_t>() / 2, width = 2 * head_width(a.config);
  for (int64_t i = 0; i < a.config.num_blocks(); ++i) {
    const std::string layer = text("model.layers.", i, ".self_attn."), norm = layer + "subln.weight";
    if (kind == "affine") {
      a.tensors[norm] = [width, like = a.tensors.at(layer + "o_proj.weight")] {
        return at::ones({width}, like().options());
      };
      continue;
    }
    Load& out = a.tensors.at(layer + "o_proj.weight");
    out = [old = out, weight = a.tensors.at(norm), heads] { return old() * weight().repeat({heads}); };
    a.tensors.erase(norm);
  }
  a.config.attention["head_norm"] = kind;
}

}  // namespace

Adaptation adapted(const Checkpoint& c, const Layout& to) {
  Adaptation a{.config = c.config, .tensors = {}};
  for (const auto& [name, tensor] : our_tensors(c)) a.tensors[name] = [tensor] { return tensor.load(); };
  if (!to.rows) return a;
  pair_rotary_dimensions(a, to.rope_pairing);
  weigh_head_norm(a, to.head_norm);
  return a;
}

}  // namespace motet
