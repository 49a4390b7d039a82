#include "motet/checkpoints/model_folder.h"

#include "motet/checkpoints/checkpoint.h"
#include "motet/core/file.h"
#include "motet/formats/safetensors.h"
#include "motet/ops/device.h"

namespace motet {

namespace fs = std::filesystem;

ModelFiles model_files(ModelImpl& model, const ExtraFiles& extra, const nlohmann::json& token_ids) {
  const bool wide = model.parameters().front().scalar_type() == at::kDouble;
  nlohmann::json config = config_json(model.config());
  if (wide) config["torch_dtype"] = "float64";
  config.update(token_ids);
  ModelFiles files{.texts = extra, .parameters = {}};
  files.texts["config.json"] = config.dump(2) + "\n";
  for (const auto& item : model.named_parameters()) {
    const Tensor own = item.value().detach();
    files.parameters.emplace_back(item.key(), wide ? own : own.to(at::kFloat));
  }
  return files;
}

void write_model_files(const fs::path& folder, const ModelFiles& files) {
  for (const auto& [name, bytes] : files.texts) write_file_atomic(folder / name, bytes);
  write_tensors(folder / "model.safetensors", files.parameters);
}

void write_tensors(const fs::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<TensorPromise> promised;  // one at a time is copied to the host
  for (const auto& [name, tensor] : tensors)
    promised.push_back({name, stored_dtype_of(tensor.scalar_type()), tensor.sizes().vec(),
                        [tensor = tensor](const TensorPromise::Take& take) {
                          const Tensor here = tensor.to(at::kCPU).contiguous();
                          take(host_bytes(here));
                        }});
  write_safetensors(path, promised, {{"format", "pt"}});
}

void save_model_folder(const fs::path& path, ModelImpl& model, const ExtraFiles& extra,
                       const nlohmann::json& token_ids) {
  AtomicFolder folder(path);
  write_model_files(folder.path(), model_files(model, extra, token_ids));
  folder.commit();
}

Model load_model_folder(const fs::path& path) { return load_model(open_checkpoint(path)); }

}  // namespace motet
