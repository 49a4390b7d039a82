#include "motet/checkpoints/checkpoint.h"
#include "motet/checkpoints/model_folder.h"
#include "motet/core/error.h"

// A model with the values of a checkpoint.
namespace motet {
namespace {

void want_shape(const Checkpoint& c, const std::string& name, at::IntArrayRef shape) {
  const at::IntArrayRef own = c.tensors.all.at(name).shape;
  if (own != shape) fail(c.tensors.where, ": tensor ", name, " has shape ", text(own), ", want ", text(shape));
}

// The sizes that a model's memory grows with, before any is taken: a wrong number must not ask for terabytes.
void check_sizes(const Checkpoint& c) {
  const int64_t width = c.config.hidden_size();
  double elements = 0;
  for (const auto& [name, stored] : c.tensors.all) {
    double own = 1;
    for (const int64_t n : stored.shape) own *= static_cast<double>(n);
    elements += own;
  }
  std::map<std::string, const Row*> rows;
  for (const Row& row : c.rows)
    for (const std::string& name : row.ours) rows[name] = &row;
  const auto check = [&](const std::string& ours, at::IntArrayRef shape) {
    const auto found = rows.find(ours);
    if (found == rows.end()) fail(c.tensors.where, ": tensor ", ours, " is missing");
    if (found->second->order == Order::same) want_shape(c, found->second->stored, shape);
  };
  check("model.embed_tokens.weight", {c.config.vocab_size, width});
  for (int64_t i = 0; i < c.config.num_layers(); ++i) {
    const std::string layer = text("model.layers.", i, ".");
    check(layer + "input_layernorm.weight", {width});
    check(layer + "mlp.down_proj.weight", {width, c.config.intermediate_size()});
  }
  const double queries = static_cast<double>(c.config.attention.at("num_heads").get<int64_t>()) *
                         static_cast<double>(head_width(c.config)) * static_cast<double>(width) *
                         static_cast<double>(c.config.num_layers());
  if (c.config.attention.at("mechanism") != "talking_heads" && c.config.attention.at("mechanism") != "key_size" &&
      queries > elements)
    fail(c.tensors.where, ": ", elements, " numbers cannot hold ", c.config.num_layers(), " layers of ",
         c.config.attention.at("num_heads").get<int64_t>(), " heads of ", head_width(c.config));
}

// What attention options ask for beyond that is bounded by their ranges; the machine may still be too small.
Model built(const Checkpoint& c) {
  const std::string where = c.folder.empty() ? c.tensors.where : (c.folder / "config.json").string();
  try {
    return Model(c.config);
  } catch (const UsageError& error) {
    fail(where, ": ", error.what());
  } catch (const c10::Error&) {
    fail(where, ": no memory for a model of these sizes");
  } catch (const std::bad_alloc&) {
    fail(where, ": no memory for a model of these sizes");
  }
}

bool is_floating(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
}

}  // namespace

Model load_model(const Checkpoint& c, at::ScalarType type) {
  check_sizes(c);
  at::NoGradGuard no_grad;
  Model model = built(c);
  model->to(type);
  auto parameters = model->named_parameters();
  std::map<std::string, Tensor> left;
  for (auto& item : parameters) left[item.key()] = item.value();
  for (const Row& row : c.rows) {
    const StoredTensor& stored = c.tensors.all.at(row.stored);
    std::vector<Tensor> own;
    for (const std::string& name : row.ours) {
      const auto found = left.find(name);
      if (found == left.end()) fail(c.tensors.where, ": tensor ", row.stored, " belongs to no part of the model");
      own.push_back(found->second);
      left.erase(found);
    }
    want_shape(c, row.stored, row.given(own).sizes());
    if (!is_floating(stored.dtype))
      fail(c.tensors.where, ": tensor ", row.stored, " has dtype ", stored.stored_as, ", want F32, F64, BF16 or F16");
    const std::vector<Tensor> values = row.taken(stored.load());
    for (size_t i = 0; i < own.size(); ++i) own[i].copy_(values[i]);
  }
  if (!left.empty()) fail(c.tensors.where, ": tensor ", left.begin()->first, " is missing");
  return model;
}

}  // namespace motet
