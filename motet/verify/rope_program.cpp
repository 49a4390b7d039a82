#include "motet/mechanisms/projected.h"
#include "motet/verify/rope.h"

namespace motet {
namespace {

void add_scaling(const Spec& rope, nlohmann::json& options) {
  if (!rope.has("scaling")) return;
  const Spec scaling = rope["scaling"];
  const std::string type = scaling["type"].word();
  options["rope_scaling"] = type;
  options["rope_factor"] = scaling["factor"].number();
  if (type == "dynamic") options["rope_trained_length"] = rope["max_position"].integer();
  if (type != "llama3") return;
  options["rope_trained_length"] = scaling["original_max_position_embeddings"].integer();
  options["rope_low_freq_factor"] = scaling["low_freq_factor"].number();
  options["rope_high_freq_factor"] = scaling["high_freq_factor"].number();
}

}  // namespace

void add_rope_options(const Spec& rope, int64_t head_dim, nlohmann::json& options) {
  options["rope_fraction"] = 0.0;
  if (rope.null()) return;
  const int64_t dims = rope["rotary_dims"].integer();
  if (dims < 0 || dims > head_dim || dims % 2) rope["rotary_dims"].refuse("an even number up to the head width");
  // Rounded down by the mechanism: the half keeps the product above `dims`.
  options["rope_fraction"] = dims == head_dim ? 1.0
                             : dims == 0      ? 0.0
                                              : (static_cast<double>(dims) + 0.5) / static_cast<double>(head_dim);
  options["rope_base"] = rope["base"].number();
  options["rope_pairing"] = rope["pairing"].word();
  add_scaling(rope, options);
}

Positions rope_positions(const GoldenFile& file, const Spec& rope, int64_t length) {
  if (rope.null() || rope["positions"].value() == "arange") return Positions::range(0, length, length, file.device());
  const Spec name = rope["positions"];
  const bool batched = file.layout(name.word(), "T").find('B') != std::string::npos;
  return {file.input(name, batched ? "BT" : "T").to(at::kLong), length};
}

void add_rope_quantities(const Rotary& rotary, const Positions& positions, Evaluation& out) {
  if (!rotary.active()) return;
  const RotaryTables tables = rotary.tables(positions, at::kDouble);
  out.quantities["rope_inv_freq"] = {rotary.inverse_frequencies(positions.length), "F"};
  out.quantities["rope_cos"] = {tables.cos.squeeze(2), "BTF"};
  out.quantities["rope_sin"] = {tables.sin.squeeze(2), "BTF"};
}

Evaluation run_rope(const GoldenFile& file, const Spec& spec, const Quantities&) {
  const Tensor x_BTHD = file.input(spec["input"], "BTHD");
  nlohmann::json given = nlohmann::json::object();
  add_rope_options(spec["rope"], x_BTHD.size(3), given);
  const Rotary rotary = rotary_of({.options = resolve_attention(given, "model.attention")}, x_BTHD.size(3));
  const Positions positions = rope_positions(file, spec["rope"], x_BTHD.size(1));
  Evaluation done;
  done.quantities["out"] = {rotary(x_BTHD, positions), "BTHD"};
  add_rope_quantities(rotary, positions, done);
  return done;
}

}  // namespace motet
