#include <algorithm>
#include <numeric>

#include "motet/core/error.h"
#include "motet/verify/layer.h"
#include "motet/verify/layouts.h"

namespace motet {
namespace {

Tensor counted(const Tensor& heads, const Spec& projection) {
  if (projection["heads"].integer() != heads.size(0))
    projection["heads"].refuse(text(heads.size(0), ", as its tensors have"));
  return heads;
}

// The heads of a projection: weights [heads, dim, in], biases [heads, dim].
Tensor heads_of(const GoldenFile& file, const Spec& projection, const char* part) {
  const Spec name = projection[part];
  if (name.null()) return {};
  const bool weight = std::string(part) == "weight";
  const std::string inner = weight ? "I" : "";
  const std::string layout = weight ? projection["layout"].word() : file.layout(name.word(), "O");
  const Tensor stored = file.input(name, layout);
  if (layout.find('O') == std::string::npos)
    return counted(arranged(stored, layout, "HD" + inner, name.word()), projection);
  const Tensor rows = arranged(stored, layout, "O" + inner, name.word());
  std::vector<Tensor> heads;
  const int64_t dim = projection["dim"].integer();
  for (const Spec& row : projection["rows"].items()) {
    if (dim < 1 || row.integer() < 0 || row.integer() > rows.size(0) - dim)
      row.refuse(text("the first of ", dim, " of ", rows.size(0), " rows"));
    heads.push_back(rows.narrow(0, row.integer(), dim));
  }
  if (heads.empty()) projection["rows"].refuse("a row for each head");
  return counted(at::stack(heads), projection);
}

// Value heads: each one the concatenation of projected heads.
Tensor value_heads_of(const GoldenFile& file, const Spec& spec, const char* part) {
  const Tensor projected = heads_of(file, spec["projections"]["v"], part);
  if (!projected.defined()) return {};
  std::vector<Tensor> values;
  for (const Spec& members : spec["value_heads"].items())
    values.push_back(picked(projected, members.integers(), members.place()).flatten(0, 1));
  if (values.empty()) spec["value_heads"].refuse("a list for each value head");
  return at::stack(values);
}

// The order of stored heads under which the mechanism's own table (empty: contiguous groups) reads what the spec's
// table reads; nothing when there is none.
std::optional<std::vector<int64_t>> stored_order(std::vector<int64_t> own, const std::vector<int64_t>& wanted,
                                                 int64_t stored) {
  const int64_t heads = static_cast<int64_t>(wanted.size());
  if (stored < 1 || (own.empty() && heads % stored)) return {};
  if (own.empty())
    for (int64_t h = 0; h < heads; ++h) own.push_back(h / (heads / stored));
  if (own.size() != wanted.size()) return {};
  std::vector<int64_t> order(static_cast<size_t>(stored), -1);
  for (size_t h = 0; h < wanted.size(); ++h) {
    int64_t& read = order[static_cast<size_t>(own[h])];
    if (wanted[h] < 0 || (read >= 0 && read != wanted[h])) return {};
    read = wanted[h];
  }
  for (int64_t& read : order) read = std::max<int64_t>(read, 0);  // a head that nobody reads
  return order;
}

// One side of stored heads: how the spec counts, names and reads them.
struct Stored {
  const char *table, *count, *width;
  std::string parameter;
};

// Stored heads in the order that makes the mechanism's own table right; else as they are, with the spec's table.
std::vector<int64_t> order_of(const Spec& spec, const Layer& layer, const Stored& side, const std::vector<int64_t>& own,
                              std::vector<int64_t>& stated) {
  const std::vector<int64_t> wanted = spec[side.table].integers();
  const Tensor weight = layer.mechanism->named_parameters()[side.parameter + ".weight"];
  if (const auto found = stored_order(own, wanted, weight.size(0) / spec[side.width].integer())) return *found;
  stated = wanted;
  std::vector<int64_t> same(static_cast<size_t>(spec["heads"][side.count].integer()));
  std::iota(same.begin(), same.end(), 0);
  return same;
}

}  // namespace

Tensor vector_of(const GoldenFile& file, const Spec& name) { return file.input(name, file.layout(name.word(), "D")); }

void add_projections(const GoldenFile& file, const Spec& spec, Layer& layer, Expressions& out) {
  const Spec projections = spec["projections"], keys = spec["heads"]["keys"], values = spec["heads"]["values"];
  if (keys.value() != projections["k"]["heads"].value()) keys.refuse("what spec.projections.k.heads is");
  if (values.integer() != static_cast<int64_t>(spec["value_heads"].items().size()))
    values.refuse("as many as spec.value_heads lists");
  const std::string key_name = layer.mechanism->named_parameters().contains("t_proj.weight") ? "t_proj" : "k_proj";
  const Positions first = Positions::range(0, 1, 1);
  const Heads own = layer.mechanism->attention(first, first, Pass::whole).heads;
  const auto key_order = order_of(spec, layer, {"key_of", "keys", "head_dim", key_name}, own.key_of, layer.key_of);
  const auto value_order =
      order_of(spec, layer, {"value_of", "values", "value_dim", "v_proj"}, own.value_of, layer.value_of);
  const auto flat = [](const Tensor& heads, const std::vector<int64_t>& order, const char* place) {
    return heads.defined() ? picked(heads, order, place).flatten(0, 1) : Tensor();
  };
  for (const char* part : {"weight", "bias"}) {
    const std::string suffix = std::string(".") + part;
    out["q_proj" + suffix] =
        flat(heads_of(file, projections["q"], part), spec["query_order"].integers(), "spec.query_order");
    out[key_name + suffix] = flat(heads_of(file, projections["k"], part), key_order, "spec.key_of");
    out["v_proj" + suffix] = flat(value_heads_of(file, spec, part), value_order, "spec.value_of");
  }
  const Spec last = projections["out"];
  const std::string layout = last["layout"].word(), name = last["weight"].word();
  const Tensor weight = file.input(last["weight"], layout);
  out["o_proj.weight"] = layout.find('H') == std::string::npos ? arranged(weight, layout, "OI", name)
                                                               : arranged(weight, layout, "OHD", name).flatten(1);
  out["o_proj.bias"] = last["bias"].null() ? Tensor() : vector_of(file, last["bias"]);
}

}  // namespace motet
