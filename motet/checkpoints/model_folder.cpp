#include "motet/checkpoints/model_folder.h"

#include "motet/checkpoints/checkpoint.h"
#include "motet/core/file.h"
#include "motet/formats/safetensors.h"

namespace motet {

namespace fs = std::filesystem;

void save_model_folder(const fs::path& path, ModelImpl& model, const ExtraFiles& extra,
                       const nlohmann::json& token_ids) {
  AtomicFolder folder(path);
  const bool wide = model.parameters().front().scalar_type() == at::kDouble;
  nlohmann::json config = config_json(model.config());
  if (wide) config["torch_dtype"] = "float64";
  config.update(token_ids);
  write_file_atomic(folder.path() / "config.json", config.dump(2) + "\n");
  for (const auto& [name, bytes] : extra) write_file_atomic(folder.path() / name, bytes);
  std::vector<Tensor> kept;  // the views point into these
  std::vector<TensorView> views;
  for (const auto& item : model.named_parameters()) {
    kept.push_back(item.value().detach().to(at::kCPU, wide ? at::kDouble : at::kFloat).contiguous());
    const Tensor& t = kept.back();
    views.push_back({item.key(),
                     wide ? "F64" : "F32",
                     t.sizes().vec(),
                     {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()}});
  }
  write_safetensors(folder.path() / "model.safetensors", views, {{"format", "pt"}});
  folder.commit();
}

Model load_model_folder(const fs::path& path) { return load_model(open_checkpoint(path)); }

}  // namespace motet
