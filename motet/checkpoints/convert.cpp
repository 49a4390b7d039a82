#include "motet/checkpoints/convert.h"

#include "motet/checkpoints/model_folder.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/formats/gguf.h"
#include "motet/formats/json.h"
#include "motet/formats/safetensors.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const char *const kConfig = "published_config.json", *const kBuffers = "published_buffers.safetensors";
constexpr const char* kBeside[] = {
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
    "vocab.json",     "merges.txt",      "chat_template.jinja",   "added_tokens.json"};

TensorPromise promised(const std::string& name, const std::vector<int64_t>& shape, at::ScalarType dtype,
                       std::function<Tensor()> load) {
  return {name, stored_dtype_of(dtype), shape, [load = std::move(load), dtype](const TensorPromise::Take& take) {
            const Tensor value = load().to(dtype).contiguous();
            take({static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()});
          }};
}

// A stored tensor as it is.
TensorPromise promised(const std::string& name, const StoredTensor& stored) {
  return promised(name, stored.shape, stored.dtype, stored.load);
}

// The config.json that a folder of ours was made from, when it is of this layout and still says what the folder says.
std::string published_text(const Checkpoint& c, const Layout& to, const ModelConfig& config) {
  const fs::path path = c.folder / kConfig;
  if (c.folder.empty() || c.layout->rows || !fs::exists(path)) return "";
  const std::string text = read_file(path);
  const json published = parse_json(text, path.string());
  const std::string mechanism = to.mechanism;
  try {
    if (&layout_of(published, path.string(), published.contains("mechanism") ? "" : mechanism) != &to) return "";
    check_same_function(config, read_config(to, published, path.string(), mechanism), path.string());
  } catch (const Error&) {
    return "";  // the model was changed since
  }
  return text;
}

// Rows of the target with our tensors in them, each made when it is written.
std::vector<TensorPromise> promises_of(const Adaptation& a, const std::vector<Row>& rows,
                                       std::optional<at::ScalarType> dtype) {
  std::vector<TensorPromise> out;
  for (const Row& row : rows) {
    std::vector<std::function<Tensor()>> loads;
    for (const std::string& name : row.ours) {
      const auto found = a.tensors.find(name);
      if (found == a.tensors.end()) fail("tensor ", name, ", which ", row.stored, " holds, is missing");
      loads.push_back(found->second);
    }
    const auto load = [row, loads] {
      std::vector<Tensor> own;
      for (const auto& one : loads) own.push_back(one());
      return row.given(own);
    };
    const Tensor first = load();  // for its shape and type; released at once
    out.push_back(promised(row.stored, first.sizes().vec(), dtype.value_or(first.scalar_type()), load));
  }
  return out;
}

std::vector<Row> rows_of(const Layout& to, const Adaptation& a) {
  if (to.rows) return expanded(to.rows(a.config), a.config.num_layers());
  std::vector<Row> rows;
  for (const auto& [name, load] : a.tensors) rows.push_back({name, {name}});
  return rows;
}

void copy_beside(const Checkpoint& c, const fs::path& out) {
  if (!c.folder.empty())
    for (const char* name : kBeside)
      if (fs::is_regular_file(c.folder / name)) write_file_atomic(out / name, read_file(c.folder / name));
  if (c.format != "gguf") return;
  const auto template_text = static_cast<const GgufFile*>(c.tensors.files.get())->word("tokenizer.chat_template");
  if (template_text) write_file_atomic(out / "chat_template.jinja", *template_text);
}

const char* dtype_name(const std::vector<TensorPromise>& tensors) {
  const std::string first = tensors.empty() ? "F32" : tensors.front().dtype;
  return first == "BF16" ? "bfloat16" : first == "F16" ? "float16" : first == "F64" ? "float64" : "float32";
}

}  // namespace

Converted convert_checkpoint(const Checkpoint& c, const Layout& to, const fs::path& out,
                             std::optional<at::ScalarType> dtype, const ExtraFiles& extra) {
  at::NoGradGuard no_grad;
  const Adaptation a = adapted(c, to);
  json config = write_config(to, a.config);
  const std::string published = published_text(c, to, a.config);
  std::vector<TensorPromise> tensors = promises_of(a, rows_of(to, a), dtype);
  config["torch_dtype"] = dtype_name(tensors);
  for (const char* id : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (c.layout->rows && to.rows && c.published.is_object() && c.published.contains(id)) config[id] = c.published[id];
  if (c.format == "gguf" && to.rows)
    for (const char* id : {"bos_token_id", "eos_token_id"})
      if (const auto token = static_cast<const GgufFile*>(c.tensors.files.get())->integer(text("tokenizer.ggml.", id)))
        config[id] = *token;

  AtomicFolder folder(out);
  std::optional<Tensors> buffers;
  if (!published.empty() && fs::exists(c.folder / kBuffers)) {
    buffers = safetensors_tensors((c.folder / kBuffers).string());
    for (const auto& [name, stored] : buffers->all) tensors.push_back(promised(name, stored));
  }
  write_safetensors((folder.path() / "model.safetensors").string(), tensors, {{"format", "pt"}});
  write_file_atomic(folder.path() / "config.json", published.empty() ? config.dump(2) + "\n" : published);
  if (!to.rows && c.layout->rows && !c.folder.empty()) {
    write_file_atomic(folder.path() / kConfig, read_file(c.folder / "config.json"));
    std::vector<TensorPromise> kept;
    for (const std::string& name : c.ignored) kept.push_back(promised(name, c.tensors.all.at(name)));
    if (!kept.empty()) write_safetensors((folder.path() / kBuffers).string(), kept, {{"format", "pt"}});
  }
  if (!to.rows && !c.layout->rows)
    for (const char* name : {kConfig, kBuffers})
      if (fs::exists(c.folder / name)) write_file_atomic(folder.path() / name, read_file(c.folder / name));
  copy_beside(c, folder.path());
  for (const auto& [name, bytes] : extra) write_file_atomic(folder.path() / name, bytes);
  folder.commit();
  Converted made{.tensors = tensors.size(), .restored = !published.empty()};
  for (const TensorPromise& tensor : tensors) {
    int64_t numbers = 1;
    for (const int64_t n : tensor.shape) numbers *= n;
    made.numbers += numbers;
  }
  return made;
}

}  // namespace motet
