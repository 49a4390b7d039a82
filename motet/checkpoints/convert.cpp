#include "motet/checkpoints/convert.h"

#include "motet/checkpoints/eight_bits.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/formats/json.h"
#include "motet/formats/safetensors.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const char *const kConfig = "published_config.json", *const kBuffers = "published_buffers.safetensors";

// A type of safetensors as config.json and --dtype call it.
const char* word_for(const std::string& stored) {
  return stored == "BF16" ? "bfloat16" : stored == "F16" ? "float16" : stored == "F64" ? "float64" : "float32";
}

// `value` as `dtype`; numbers that are finite stay so unless options allow it.
Tensor narrowed(const Tensor& value, at::ScalarType dtype, const std::string& name, const ConvertOptions& options) {
  const Tensor made = value.to(dtype).contiguous();
  if (options.allow_overflow || dtype == value.scalar_type()) return made;
  const Tensor infinite = at::isfinite(made).logical_not_();
  if (!infinite.any().item<bool>()) return made;
  const Tensor given = value.to(at::kDouble).masked_select(infinite), lost = given.masked_select(at::isfinite(given));
  if (lost.numel() == 0) return made;  // they were no numbers before
  fail("tensor ", name, ": ", lost.numel() == 1 ? "1 number, " : text(lost.numel(), " numbers, the first is "),
       lost[0].item<double>(), ", would become infinite in ", word_for(stored_dtype_of(dtype)),
       ", want a wider --dtype or --allow-overflow");
}

TensorPromise promised(const std::string& name, const StoredTensor& as, const ConvertOptions& options) {
  return {name, stored_dtype_of(as.dtype), as.shape, [=](const TensorPromise::Take& take) {
            const Tensor value = narrowed(as.load(), as.dtype, name, options);
            take(host_bytes(value));
          }};
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
                                       const ConvertOptions& options) {
  std::vector<TensorPromise> out;
  std::map<std::string, LinearImpl*> in_8_bits;
  if (options.weights == WeightType::int8) in_8_bits = matrices_of(*Model(a.config, at::kMeta));
  for (const Row& row : rows) {
    check_interrupt();
    if (in_8_bits.contains(row.stored)) {
      for (TensorPromise& one : promises_in_8_bits(row.stored, a.tensors.at(row.stored))) out.push_back(std::move(one));
      continue;
    }
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
    const at::ScalarType dtype = options.dtype.value_or(first.scalar_type());
    out.push_back(promised(row.stored, {first.sizes().vec(), dtype, load, ""}, options));
  }
  return out;
}

std::vector<Row> rows_of(const Layout& to, const Adaptation& a) {
  if (to.rows) return expanded(to.rows(a.config), a.config.num_layers());
  std::vector<Row> rows;
  for (const auto& [name, load] : a.tensors) rows.push_back({name, {name}});
  return rows;
}

}  // namespace

Converted convert_checkpoint(const Checkpoint& c, const Layout& to, const fs::path& out,
                             const ConvertOptions& options) {
  at::NoGradGuard no_grad;
  if (options.weights == WeightType::int8 && to.rows)
    fail_usage("the layout ", to.name, " holds no weights in 8 bits, want motet");
  const Adaptation a = adapted(c, to);
  const Companions companions = companions_of(c);
  json config = write_config(to, a.config);
  const std::string published = published_text(c, to, a.config);
  std::vector<TensorPromise> tensors = promises_of(a, rows_of(to, a), options);
  config["torch_dtype"] = word_for(tensors.empty() ? "F32" : tensors.front().dtype);
  if (options.weights == WeightType::int8) declare_8_bits(config, a.config);
  const json padding = config.value("pad_token_id", json());
  config.update(companions.token_ids);
  if (to.skips_padding && published.empty() && config["pad_token_id"] != padding)
    fail("the layout ", to.name, " begins positions behind padding, here token ", padding.dump(),
         ", and the model's pad_token_id is ", config["pad_token_id"].dump(),
         ", want model.first_position = pad_token_id + 1");

  AtomicFolder folder(out);
  std::optional<Tensors> buffers;
  if (!published.empty() && fs::exists(c.folder / kBuffers)) {
    buffers = safetensors_tensors((c.folder / kBuffers).string());
    for (const auto& [name, stored] : buffers->all) {
      std::erase_if(tensors, [&](const TensorPromise& tensor) { return tensor.name == name; });
      tensors.push_back(promised(name, stored, {}));
    }
  }
  for (TensorPromise& tensor : tensors)
    tensor.give = [give = std::move(tensor.give)](const TensorPromise::Take& take) {
      check_interrupt();
      give(take);
    };
  write_safetensors((folder.path() / "model.safetensors").string(), tensors, {{"format", "pt"}});
  write_file_atomic(folder.path() / "config.json", published.empty() ? config.dump(2) + "\n" : published);
  if (!to.rows && c.layout->rows && !c.folder.empty()) {
    write_file_atomic(folder.path() / kConfig, read_file(c.folder / "config.json"));
    std::vector<TensorPromise> kept;
    for (const std::string& name : c.ignored) kept.push_back(promised(name, c.tensors.all.at(name), {}));
    if (!kept.empty()) write_safetensors((folder.path() / kBuffers).string(), kept, {{"format", "pt"}});
  }
  if (!to.rows && !c.layout->rows)
    for (const char* name : {kConfig, kBuffers})
      if (fs::exists(c.folder / name)) write_file_atomic(folder.path() / name, read_file(c.folder / name));
  for (const ExtraFiles& files : {companions.files, options.extra})
    for (const auto& [name, bytes] : files) write_file_atomic(folder.path() / name, bytes);
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
