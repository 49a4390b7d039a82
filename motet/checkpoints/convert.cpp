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

// The published tensors that are no parameters; one that repeats a parameter is that one as it is written now.
void add_published(std::vector<TensorPromise>& tensors, const Tensors& published, const Layout& to, const Adaptation& a,
                   const std::vector<Row>& rows) {
  const auto named = [](const std::string& name) {
    return [&name](const TensorPromise& tensor) { return tensor.name == name; };
  };
  for (const auto& [name, stored] : published.all) {
    TensorPromise own = promised(name, stored, {});
    const std::string repeated = repeated_by(to, a.config, name);
    for (const Row& row : rows)
      if (row.ours[0] == repeated) own = *std::find_if(tensors.begin(), tensors.end(), named(row.stored));
    own.name = name;
    std::erase_if(tensors, named(name));
    tensors.push_back(std::move(own));
  }
}

// The word for the type of all numbers where a conversion changes that, else "".
std::string changed_dtype(const Checkpoint& c, const ConvertOptions& options) {
  if (!options.dtype && options.weights != WeightType::int8) return "";
  const at::ScalarType dtype = options.dtype.value_or(at::kFloat);  // of what 8 bits stand for
  const bool same = std::all_of(c.rows.begin(), c.rows.end(),
                                [&](const Row& row) { return c.tensors.all.at(row.stored).dtype == dtype; });
  return same ? "" : word_for(stored_dtype_of(dtype));
}

// A published config.json with that word; byte for byte the same where there is none.
std::string with_dtype(const std::string& published, const std::string& word, const std::string& where) {
  if (word.empty()) return published;
  json config = parse_json(published, where);
  for (const char* key : {"torch_dtype", "dtype"})
    if (config.contains(key)) config[key] = word;
  return config.dump(2) + "\n";
}

// What a folder of ours needs to become the published one again.
void keep_published(const fs::path& folder, const Checkpoint& c, const std::string& dtype) {
  const fs::path config = c.folder / (c.layout->rows ? "config.json" : kConfig), buffers = c.folder / kBuffers;
  if (c.folder.empty() || !fs::exists(config)) return;
  write_file_atomic(folder / kConfig, with_dtype(read_file(config), dtype, config.string()));
  if (!c.layout->rows && fs::exists(buffers)) write_file_atomic(folder / kBuffers, read_file(buffers));
  if (!c.layout->rows || c.ignored.empty()) return;
  std::vector<TensorPromise> kept;
  for (const std::string& name : c.ignored) kept.push_back(promised(name, c.tensors.all.at(name), {}));
  write_safetensors((folder / kBuffers).string(), kept, {{"format", "pt"}});
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
  check_tensors(c);
  const Adaptation a = adapted(c, to);
  check_mechanism(to, a.config);  // its rows ask for that one's options
  const std::vector<Row> rows = rows_of(to, a);
  const std::string dtype = changed_dtype(c, options);
  const Companions companions = companions_of(c);
  const std::string published = published_text(c, to, a.config);
  json config = published.empty() ? write_config(to, a.config) : json::object();  // the published one may say more
  std::vector<TensorPromise> tensors = promises_of(a, rows, options);
  config["torch_dtype"] = word_for(tensors.empty() ? "F32" : tensors.front().dtype);
  if (options.weights == WeightType::int8) declare_8_bits(config, a.config);
  const json padding = config.value("pad_token_id", json());
  config.update(companions.token_ids);
  if (to.skips_padding && published.empty() && config["pad_token_id"] != padding)
    fail("the layout ", to.name, " begins positions behind padding, here token ", padding.dump(),
         ", and the model's pad_token_id is ", config["pad_token_id"].dump(),
         ", want model.first_position = pad_token_id + 1");

  AtomicFolder folder(out, AtomicFolder::Older::refused);
  if (!published.empty() && fs::exists(c.folder / kBuffers))
    add_published(tensors, safetensors_tensors((c.folder / kBuffers).string()), to, a, rows);
  for (TensorPromise& tensor : tensors)
    tensor.give = [give = std::move(tensor.give)](const TensorPromise::Take& take) {
      check_interrupt();
      give(take);
    };
  write_safetensors((folder.path() / "model.safetensors").string(), tensors, {{"format", "pt"}});
  write_file_atomic(folder.path() / "config.json",
                    published.empty() ? config.dump(2) + "\n" : with_dtype(published, dtype, kConfig));
  if (!to.rows) keep_published(folder.path(), c, dtype);
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
