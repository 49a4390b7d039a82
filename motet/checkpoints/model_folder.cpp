#include "motet/checkpoints/model_folder.h"

#include "motet/checkpoints/checkpoint.h"
#include "motet/core/file.h"
#include "motet/formats/safetensors.h"
#include "motet/ops/device.h"

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
  std::vector<TensorPromise> tensors;  // one at a time is copied to the host
  for (const auto& item : model.named_parameters()) {
    const Tensor own = item.value().detach();
    tensors.push_back({item.key(), wide ? "F64" : "F32", own.sizes().vec(), [=](const TensorPromise::Take& take) {
                         const Tensor here = own.to(at::kCPU, wide ? at::kDouble : at::kFloat).contiguous();
                         take(host_bytes(here));
                       }});
  }
  write_safetensors(folder.path() / "model.safetensors", tensors, {{"format", "pt"}});
  folder.commit();
}

Model load_model_folder(const fs::path& path) { return load_model(open_checkpoint(path)); }

}  // namespace motet
