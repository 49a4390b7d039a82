#include <set>

#include "motet/checkpoints/allocation_limit.h"
#include "motet/checkpoints/checkpoint.h"
#include "motet/checkpoints/eight_bits.h"
#include "motet/checkpoints/model_folder.h"
#include "motet/core/error.h"
#include "motet/ops/number_type.h"

// A model with the values of a checkpoint.
namespace motet {
namespace {

constexpr double kRoomForTemporaries = 2;      // numbers that initialisers make on their way
constexpr size_t kSmallTemporaries = 4 << 20;  // bytes

void want_shape(const Checkpoint& c, const std::string& name, at::IntArrayRef shape) {
  const at::IntArrayRef own = c.tensors.all.at(name).shape;
  if (own != shape) fail(c.tensors.where, ": tensor ", name, " has shape ", text(own), ", want ", text(shape));
}

// The sizes that most of a model's numbers come from, so that the message names the tensor.
void check_sizes(const Checkpoint& c) {
  const int64_t width = c.config.hidden_size();
  std::map<std::string, const Row*> rows;
  for (const Row& row : c.rows)
    for (const std::string& name : row.ours) rows[name] = &row;
  const auto check = [&](const std::string& ours, at::IntArrayRef shape) {
    const auto found = rows.find(ours);
    if (found == rows.end()) fail(c.tensors.where, ": tensor ", ours, " is missing");
    if (found->second->order == Order::same) want_shape(c, found->second->stored, shape);
  };
  check("model.embed_tokens.weight", {c.config.vocab_size, c.config.embedding_width()});
  for (int64_t i = 0; i < c.config.num_blocks(); ++i) {
    const std::string layer = text("model.layers.", i, ".");
    check(layer + "post_attention_layernorm.weight", {width});
    check(layer + "mlp.down_proj.weight", {width, c.config.intermediate_size()});
  }
}

// The model, with no more numbers than the file has: what attention options ask for is seen as it is asked for.
Model built(const Checkpoint& c, at::Device device) {
  const std::string where = c.folder.empty() ? c.tensors.where : (c.folder / "config.json").string();
  double numbers = 0;
  for (const auto& [name, stored] : c.tensors.all) {
    double own = 1;
    for (const int64_t n : stored.shape) own *= static_cast<double>(n);
    numbers += own;
  }
  const auto most = static_cast<size_t>(numbers * sizeof(float) * kRoomForTemporaries) + kSmallTemporaries;
  const AllocationLimit limit(most, [&] {
    fail(where, ": asks for a model with more numbers than the ", static_cast<int64_t>(numbers), " of ",
         c.tensors.where);
  });
  try {
    return Model(c.config, device);
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

// The type of a stored tensor: of a folder in 8 bits every matrix has them, and nothing else has.
void check_type(const Checkpoint& c, const std::string& name, bool matrix) {
  const StoredTensor& stored = c.tensors.all.at(name);
  const auto wrong = [&](const char* wanted) {
    fail(c.tensors.where, ": tensor ", name, " has dtype ", stored.stored_as, ", want ", wanted);
  };
  if (!is_floating(stored.dtype) || (stored.kept && !matrix)) wrong("F32, F64, BF16 or F16");
  if (c.in_8_bits && matrix && !stored.kept) wrong("I8, as quantization_config in config.json says");
}

// Every tensor is one of the model's, of its shape and a type that is read, and none is missing.
void check_fit(const Checkpoint& c, ModelImpl& model) {
  const std::map<std::string, LinearImpl*> matrices = matrices_of(model);
  std::map<std::string, Tensor> left;
  for (const auto& item : model.named_parameters())
    left[item.key()] = at::empty_like(item.value(), at::TensorOptions(at::kMeta));
  for (const Row& row : c.rows) {
    std::vector<Tensor> shapes;
    for (const std::string& name : row.ours) {
      const auto found = left.find(name);
      if (found == left.end()) fail(c.tensors.where, ": tensor ", row.stored, " belongs to no part of the model");
      shapes.push_back(found->second);
      left.erase(found);
    }
    want_shape(c, row.stored, row.given(shapes).sizes());
    check_type(c, row.stored, matrices.contains(row.ours[0]));
  }
  if (!left.empty()) fail(c.tensors.where, ": tensor ", left.begin()->first, " is missing");
}

}  // namespace

void check_tensors(const Checkpoint& c) {
  check_sizes(c);
  check_fit(c, *built(c, at::kMeta));
}

Model load_model(const Checkpoint& c, const Placement& placement) {
  check_sizes(c);
  at::NoGradGuard no_grad;
  Model model = built(c, placement.device);
  check_fit(c, *model);
  model->to(placement.dtype);
  const bool keeps = placement.dtype == at::kFloat && placement.weights != WeightType::float32;
  const at::ScalarType kept = dtype_of(placement.weights);
  const std::map<std::string, LinearImpl*> matrices = matrices_of(*model);
  auto parameters = model->named_parameters();
  for (const Row& row : c.rows) {
    const StoredTensor& stored = c.tensors.all.at(row.stored);
    if (keeps && stored.kept && kept == at::kChar) {
      matrices.at(row.ours[0])->keep(stored.kept());
      continue;
    }
    const Tensor lies = stored.load();
    const std::vector<Tensor> values = row.taken(lies);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto matrix = matrices.find(row.ours[i]);
      if (keeps && matrix != matrices.end() && values[i].scalar_type() == kept) {
        const Tensor rows = values[i].contiguous();
        matrix->second->keep({.values_NK = rows, .kept = true, .mapped = stored.in_file && rows.is_alias_of(lies)});
      } else {
        parameters[row.ours[i]].copy_(values[i]);
      }
    }
  }
  return model;
}

WeightType usual_weights(const Checkpoint& c, at::Device device) {
  return c.in_8_bits || device.is_cpu() ? stored_weights(c) : WeightType::float32;
}

WeightType stored_weights(const Checkpoint& c) {
  if (c.in_8_bits) return WeightType::int8;
  std::set<at::ScalarType> types;
  for (const Row& row : c.rows)
    if (const StoredTensor& t = c.tensors.all.at(row.stored); t.shape.size() > 1) types.insert(t.dtype);
  for (const WeightType type : {WeightType::bfloat16, WeightType::float16})
    if (types == std::set{dtype_of(type)}) return type;
  return WeightType::float32;
}

}  // namespace motet
