#pragma once
#include "motet/mechanisms/mechanism.h"
#include "motet/verify/programs.h"

// A whole attention layer of a golden file as one of our mechanisms.
namespace motet {

/// The sizes and options under which our mechanism is the one of the spec. Throws Error for what it cannot express.
Setting layer_setting(const GoldenFile&, const Spec&);

/// Whether a mix ("pre" or "post") of the spec has parts: static maps or generated ones.
bool has_parts(const Spec&, const std::string& place);

/// A mechanism that holds the file's weights.
struct Layer {
  Setting setting;
  std::shared_ptr<Mechanism> mechanism;
  /// Head tables of the spec that no order of stored heads turns into the mechanism's own; empty: its own hold.
  std::vector<int64_t> key_of, value_of;
  /// Each parameter and the function of the file's tensors that it was filled with.
  std::vector<Tensor> parameters, expressions;
};
Layer make_layer(const GoldenFile&, const Spec&);

/// Parameter of our mechanism -> what the spec says it holds; undefined = zeros.
using Expressions = std::map<std::string, Tensor>;

/// q_proj, k_proj (t_proj), v_proj and o_proj, heads in the order in which the mechanism's own tables read them; where
/// there is none, layer.key_of or layer.value_of state the spec's table.
void add_projections(const GoldenFile&, const Spec&, Layer&, Expressions&);

/// A vector, whatever letter its axis has.
Tensor vector_of(const GoldenFile&, const Spec& name);

}  // namespace motet
