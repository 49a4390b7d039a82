#include "motet/checkpoints/model_folder.h"

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/formats/json.h"
#include "motet/formats/safetensors.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

at::ScalarType dtype_of(const TensorView& t, const std::string& where) {
  static const std::map<std::string, at::ScalarType> known{
      {"F32", at::kFloat}, {"F64", at::kDouble}, {"BF16", at::kBFloat16}, {"F16", at::kHalf}};
  const auto found = known.find(t.dtype);
  if (found == known.end()) fail(where, ": tensor ", t.name, " has dtype ", t.dtype, ", want F32, F64, BF16 or F16");
  return found->second;
}

const TensorView& tensor_of(const SafetensorsFile& file, const std::string& name, at::IntArrayRef shape,
                            const std::string& where) {
  const TensorView* t = file.find(name);
  if (!t) fail(where, ": tensor ", name, " is missing");
  if (at::IntArrayRef(t->shape) != shape)
    fail(where, ": tensor ", name, " has shape ", text(at::IntArrayRef(t->shape)), ", want ", text(shape));
  return *t;
}

// The sizes that a model's memory grows with, before any is taken: a wrong number must not ask for terabytes.
void check_sizes(const ModelConfig& c, const SafetensorsFile& file, const std::string& where) {
  const int64_t width = c.hidden_size();
  tensor_of(file, "model.embed_tokens.weight", {c.vocab_size, width}, where);
  for (int64_t i = 0; i < c.num_layers(); ++i) {
    const std::string layer = text("model.layers.", i, ".");
    tensor_of(file, layer + "input_layernorm.weight", {width}, where);
    tensor_of(file, layer + "mlp.down_proj.weight", {width, c.intermediate_size()}, where);
  }
}

// What attention options ask for beyond that is bounded by their ranges; the machine may still be too small.
Model built(const ModelConfig& config, const std::string& where) {
  try {
    return Model(config);
  } catch (const c10::Error&) {
    fail(where, ": no memory for a model of these sizes");
  } catch (const std::bad_alloc&) {
    fail(where, ": no memory for a model of these sizes");
  }
}

void fill_parameters(ModelImpl& model, const SafetensorsFile& file, const std::string& where) {
  at::NoGradGuard no_grad;
  size_t used = 0;
  for (auto& item : model.named_parameters()) {
    const TensorView& t = tensor_of(file, item.key(), item.value().sizes(), where);
    item.value().copy_(at::from_blob(const_cast<std::byte*>(t.bytes.data()), t.shape, dtype_of(t, where)));
    ++used;
  }
  if (used == file.tensors().size()) return;
  const auto names = model.named_parameters();
  for (const TensorView& t : file.tensors())
    if (!names.contains(t.name)) fail(where, ": tensor ", t.name, " belongs to no part of the model");
}

}  // namespace

void save_model_folder(const fs::path& path, ModelImpl& model, const ExtraFiles& extra) {
  AtomicFolder folder(path);
  write_file_atomic(folder.path() / "config.json", config_json(model.config()).dump(2) + "\n");
  for (const auto& [name, bytes] : extra) write_file_atomic(folder.path() / name, bytes);
  std::vector<Tensor> kept;  // the views point into these
  std::vector<TensorView> views;
  for (const auto& item : model.named_parameters()) {
    kept.push_back(item.value().detach().to(at::kCPU, at::kFloat).contiguous());
    const Tensor& t = kept.back();
    views.push_back(
        {item.key(), "F32", t.sizes().vec(), {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()}});
  }
  write_safetensors(folder.path() / "model.safetensors", views, {{"format", "pt"}});
  folder.commit();
}

Model load_model_folder(const fs::path& path) {
  if (!fs::exists(path)) fail(path.string(), ": no such model folder");
  if (!fs::is_directory(path)) fail(path.string(), ": want a model folder with config.json and model.safetensors");
  const std::string config = (path / "config.json").string(), tensors = (path / "model.safetensors").string();
  const ModelConfig sizes = config_from_json(read_json(config), config);
  const SafetensorsFile file(tensors);
  check_sizes(sizes, file, tensors);
  Model model = built(sizes, config);
  fill_parameters(*model, file, tensors);
  return model;
}

}  // namespace motet
