#pragma once
#include <memory>
#include <nlohmann/json.hpp>

#include "motet/attention/attention.h"
#include "motet/layers/linear.h"
#include "motet/layers/norms.h"
#include "motet/layers/rotary.h"
#include "motet/layers/streams.h"
#include "motet/mechanisms/options.h"

namespace motet {

/// [model.attention], resolved: the options that all mechanisms have, and all there are, for those of one.
struct AttentionSection {
  AttentionSection() = default;
  AttentionSection(nlohmann::json resolved)
      : common(common_attention_options().read(resolved)), all(std::move(resolved)) {}

  AttentionOptions common;
  nlohmann::json all;
};

/// What a mechanism is built from: the sizes around it and its options.
struct Setting {
  int64_t hidden_size = 0;
  int64_t memory_size = 0;  // width of what keys read; 0 = hidden_size
  int64_t layer = 0, num_layers = 1;
  bool causal = true;
  int64_t max_position = 0;  // trained length
  AttentionSection options;
  at::Device device = at::kCPU;  // of the parameters; meta: shapes alone, without memory

  Tensor zeros(at::IntArrayRef shape) const { return at::zeros(shape, device); }
};

/// A learned number or matrix worth a picture: a static mixing matrix [N,M] or lambda [1,1].
struct LearnedMap {
  std::string name;
  Tensor values_NM;
};

/// A number of one pass that is worth a curve: of each head [H], or one [1].
struct Diagnostic {
  std::string name;  // "lambda", "pre_query_gate": a key of metrics.jsonl
  Tensor values_H;
};

/// Whether queries see all keys of a pass, as in training and for a prompt, or go on behind those that a cache holds.
enum class Pass { whole, cached };

/// One attention mechanism: a module that turns hidden states into the operator's arguments. It owns all its
/// projections; the operator knows no mechanism. Self-attention, cross-attention, cached decoding and splits over keys
/// are these calls.
class Mechanism : public Preparable {
 public:
  /// What a cache stores of memory [B,S,C]: every tensor is appended along dimension 1.
  virtual Keys keys(const Tensor& memory_BSC, const Positions&) = 0;
  /// A smaller form of the same, where there is one, and the way back: restore(compact_keys(m, at), at) = keys(m, at).
  virtual Keys compact_keys(const Tensor& memory_BSC, const Positions& at) { return keys(memory_BSC, at); }
  virtual Keys restore(const Keys& compact, const Positions&) { return compact; }
  virtual Queries queries(const Tensor& x_BTC, const Positions&) = 0;
  /// Head tables, static mixes and visibility; the positions are those of queries and keys (position biases need them).
  virtual Attention attention(const Positions& queries, const Positions& keys, Pass) = 0;
  /// Keys that a query sees, itself included; 0: all. A cache may drop what `cached` does not see.
  virtual int64_t window(Pass) const { return 0; }
  /// The rotation that queries and keys have, by their positions; null: none.
  virtual const Rotary* rotary() const { return nullptr; }
  /// Output [B,T,C] from the operator's out [B,T,Ho,E].
  virtual Tensor finish(const Tensor& out_BTHE, const Tensor& x_BTC) = 0;
  virtual std::vector<LearnedMap> learned() { return {}; }
  /// What the mechanism tells of a pass over x beside its weights: means over rows and tokens.
  virtual std::vector<Diagnostic> diagnostics(const Tensor& x_BTC, const Queries&, const Keys&) { return {}; }
  /// Fresh values of the tensors that are not plain projections; called under no_grad after those were drawn.
  virtual void initialize_extras(const Streams&) {}
  /// Whether weight decay applies to the parameter of this name ("q_proj.weight"), of two or more dimensions; vectors
  /// never decay. A mix over heads does not, for it would decay towards heads that hear nothing.
  virtual bool decays(const std::string& name) const { return true; }
  /// What makes a comparison with this configuration unfair, after its authors: "4 pairs of heads, ..."; "": nothing.
  virtual std::string caveat() const { return ""; }

  /// Of the operator's products in whatever pass.
  Precision precision = Precision::highest;

  /// All of it: x [B,T,C] attends to memory [B,S,M] (itself when undefined).
  Tensor forward(const Tensor& x_BTC, const Positions& at, const Tensor& memory_BSC = {},
                 const Positions& memory_at = {});
};

/// A named variant of a mechanism, as `motet compare` takes it: its [model.attention] section.
struct Preset {
  std::string name;
  bool compared = false;  // part of the default comparison, whose table README has
  nlohmann::json attention;
};

/// One row of the registry.
struct MechanismEntry {
  std::string name, summary;
  OptionTable options;  // beside the common ones
  std::vector<Preset> presets;
  std::shared_ptr<Mechanism> (*make)(const Setting&);
};

const std::vector<MechanismEntry>& mechanism_registry();

/// Throws UsageError with the nearest name.
const MechanismEntry& find_mechanism(const std::string& name);
std::vector<std::string> mechanism_names();

/// All options of one mechanism: "mechanism" itself, the common ones, its own.
OptionTable attention_options(const MechanismEntry&);

/// Resolves [model.attention] (defaults, ranges, unknown keys) for its mechanism.
nlohmann::json resolve_attention(const nlohmann::json& given, const std::string& section);

/// Builds what a layer has: the mechanism that setting.options names, or plain attention where `layers` leaves it out.
/// Throws UsageError naming the option that does not fit.
std::shared_ptr<Mechanism> make_mechanism(const Setting&);

}  // namespace motet
