#include "motet/checkpoints/checkpoint.h"

#include "motet/checkpoints/eight_bits.h"
#include "motet/checkpoints/model_folder.h"
#include "motet/core/error.h"
#include "motet/formats/json.h"
#include "motet/formats/model_file.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

// The weights of a folder: one file or an index of shards. A folder with only a pickle gets the advice.
std::string weights_of(const fs::path& folder) {
  const auto there = [&](const char* name) { return fs::exists(folder / name); };
  const bool single = there("model.safetensors"), index = there("model.safetensors.index.json");
  if (single && index)
    fail(folder.string(), ": has model.safetensors and model.safetensors.index.json, want one of them");
  if (!single && !index) {
    for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "pytorch_model.pt"})
      if (there(pickle)) fail(pickle_advice((folder / pickle).string()));
  }
  return (folder / (index ? "model.safetensors.index.json" : "model.safetensors")).string();
}

bool ignorable(const Layout& layout, const std::string& name) {
  return std::any_of(layout.ignored.begin(), layout.ignored.end(),
                     [&](const std::string& ending) { return name.ends_with(ending); });
}

// A tensor that is stored twice must be the same both times.
bool repeats_another(const Checkpoint& c, const std::string& name) {
  const std::string ours = repeated_by(*c.layout, c.config, name);
  if (ours.empty()) return false;
  for (const Row& row : c.rows) {
    if (row.ours[0] != ours) continue;
    const StoredTensor &first = c.tensors.all.at(row.stored), &second = c.tensors.all.at(name);
    if (first.shape == second.shape && first.dtype == second.dtype && first.load().equal(second.load())) return true;
  }
  if (ours == "model.embed_tokens.weight")
    fail(c.tensors.where, ": tensor ", name, " differs from the embedding, though tie_word_embeddings is true");
  fail(c.tensors.where, ": tensor ", name, " differs from the tensor that it repeats");
}

// transformers 5 calls GPT-NeoX's output matrix lm_head inside the module, and some files follow it.
void rename_output(Checkpoint& c) {
  auto& all = c.tensors.all;
  if (c.layout->model_type != "gpt_neox" || all.contains("embed_out.weight") || !all.contains("lm_head.weight")) return;
  for (Row& row : c.rows)
    if (row.stored == "embed_out.weight") row.stored = "lm_head.weight";
}

// Google's files of BERT, and those made of them, call the weight and bias of a layer norm gamma and beta.
void rename_norms(Checkpoint& c) {
  for (Row& row : c.rows)
    for (const auto& [ending, older] :
         {std::pair<std::string, const char*>(".LayerNorm.weight", "gamma"), {".LayerNorm.bias", "beta"}}) {
      if (!row.stored.ends_with(ending) || c.tensors.all.contains(row.stored)) continue;
      const std::string name = row.stored.substr(0, row.stored.rfind('.') + 1) + older;
      if (c.tensors.all.contains(name)) row.stored = name;
    }
}

// Where two rows hold one tensor of ours, the last that the file has is read.
void choose_rows(Checkpoint& c) {
  std::map<std::string, std::string> read;  // ours -> stored
  for (const Row& row : c.rows)
    if (c.tensors.all.contains(row.stored)) read[row.ours[0]] = row.stored;
  std::erase_if(c.rows, [&](const Row& row) {
    const auto found = read.find(row.ours[0]);
    return found != read.end() && found->second != row.stored;
  });
}

// The released files of DCFormer hold an identity where a static map could be.
void check_unused_maps(const Checkpoint& c) {
  for (const std::string& name : c.ignored) {
    if (!name.ends_with("_proj.w")) continue;
    const Tensor map = c.tensors.all.at(name).load().to(at::kDouble);
    const int64_t heads = map.dim() == 3 ? map.size(2) : 0;
    if (heads == 0 || !map.equal(at::eye(heads, at::kDouble).unsqueeze(0)))
      fail(c.tensors.where, ": tensor ", name,
           " is no identity, want \"static\": true in config.json if it is a trained map");
  }
}

[[noreturn]] void fail_missing(const Checkpoint& c, const Row& row) {
  std::string hint;
  for (const auto& [name, ignored] : c.tensors.all)
    if (name.ends_with("self_attn.t_proj.weight") && row.stored.ends_with("k_proj.weight"))
      hint = "; t_proj is CoCA's: say so with --mechanism coca, or \"mechanism\" and \"form\" in config.json";
  fail(c.tensors.where, ": tensor ", row.stored, " is missing", hint);
}

}  // namespace

void match_names(Checkpoint& c) {
  rename_output(c);
  rename_norms(c);
  choose_rows(c);
  std::map<std::string, bool> known;
  for (const Row& row : c.rows) {
    if (!c.tensors.all.contains(row.stored)) fail_missing(c, row);
    known[row.stored] = true;
  }
  for (const auto& [name, stored] : c.tensors.all) {
    if (known.contains(name)) continue;
    if (!ignorable(*c.layout, name) && !repeats_another(c, name))
      fail(c.tensors.where, ": tensor ", name, " belongs to no part of the model");
    c.ignored.push_back(name);
  }
  check_unused_maps(c);
}

Checkpoint open_folder(const fs::path& folder, const nlohmann::json& config, const std::string& mechanism) {
  const std::string where = (folder / "config.json").string();
  Checkpoint c{.format = "safetensors", .published = config, .folder = folder};
  c.layout = &layout_of(config, where, mechanism);
  nlohmann::json own = config;
  if (!c.layout->rows) c.in_8_bits = take_declared(own, where);
  c.config = read_config(*c.layout, own, where, mechanism);
  c.tensors = safetensors_tensors(weights_of(folder));
  if (c.in_8_bits) join_scales(c.tensors);
  if (!c.layout->rows) {  // ours: every name is its own; whether they are the model's is seen when it is built
    for (const auto& [name, stored] : c.tensors.all) c.rows.push_back({name, {name}});
    return c;
  }
  c.rows = expanded(c.layout->rows(c.config), c.config.num_layers());
  match_names(c);
  return c;
}

Checkpoint open_checkpoint(const fs::path& path, const std::string& mechanism) {
  if (!fs::exists(path)) fail(path.string(), ": no such model folder");
  if (fs::is_directory(path)) {
    const std::string config = (path / "config.json").string();
    return open_folder(path, read_json(config), mechanism);
  }
  const ModelFileKind kind = model_file_kind(path.string());
  if (kind == ModelFileKind::pickle) fail(pickle_advice(path.string()));
  if (kind != ModelFileKind::gguf && kind != ModelFileKind::llama2c)
    fail(path.string(), ": tensors alone do not say what model they are of, want the folder with their config.json");
  if (!mechanism.empty() && mechanism != "softmax")
    fail_usage("--mechanism ", mechanism, ": ", path.string(), " holds a plain LLaMA");
  return kind == ModelFileKind::gguf ? open_gguf(path.string()) : open_llama2c(path.string());
}

std::map<std::string, OurTensor> our_tensors(const Checkpoint& c) {
  std::map<std::string, OurTensor> out;
  for (const Row& row : c.rows)
    for (size_t part = 0; part < row.ours.size(); ++part)
      out[row.ours[part]] = {&row, part, &c.tensors.all.at(row.stored)};
  return out;
}

}  // namespace motet
