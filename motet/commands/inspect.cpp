#include <algorithm>

#include "motet/checkpoints/checkpoint.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/data/corpus.h"
#include "motet/formats/gguf.h"
#include "motet/formats/model_file.h"
#include "motet/models/cost.h"
#include "motet/probe/closely.h"

namespace motet {
namespace {

// What is shown, line by line.
class Lines {
 public:
  void row(const std::string& what, const std::string& shown, const nlohmann::json& value) {
    table_.rows.push_back({what, {shown, value}});
  }
  void count(const std::string& what, int64_t n) { row(what, short_count(static_cast<double>(n)), n); }
  void option(const std::string& name, const nlohmann::json& value) {
    row(name, value.is_string() ? value.get<std::string>() : value.dump(), value);
  }
  const Table& table() const { return table_; }

 private:
  Table table_{.columns = {{"what", Align::left}, {"value", Align::left}}};
};

// How many tensors there are, how many numbers of each stored type, and how many that are infinite or none, with the
// first tensor that has some.
void add_tensors(Lines& lines, const Tensors& tensors) {
  std::map<std::string, int64_t> numbers;
  int64_t non_finite = 0;
  std::string first;
  for (const auto& [name, stored] : tensors.all) {
    check_interrupt();
    const int64_t found = stored.kept ? 0 : count_non_finite(stored.load());  // 8 bits hold none, load_model saw scales
    if (found > 0 && first.empty()) first = name;
    non_finite += found;
    numbers[stored.stored_as] += c10::multiply_integers(stored.shape);
  }
  lines.count("tensors", static_cast<int64_t>(tensors.all.size()));
  for (const auto& [type, n] : numbers) lines.count("stored." + type, n);
  lines.count("non_finite", non_finite);
  if (!first.empty()) lines.row("non_finite.first", first, first);
}

void add_model(Lines& lines, const Checkpoint& checkpoint) {
  load_model(checkpoint, {.weights = stored_weights(checkpoint)});  // that it can be
  const ModelConfig& c = checkpoint.config;
  const ModelCost cost = model_cost(*Model(c, at::kMeta));
  lines.row("format", checkpoint.format, checkpoint.format);
  lines.row("layout", checkpoint.layout->name, checkpoint.layout->name);
  lines.row("mechanism", c.attention.at("mechanism"), c.attention.at("mechanism"));
  ModelOptions derived = c.options;
  derived.activation = c.activation();
  const nlohmann::json options = model_options().write(derived);
  for (const char* key : {"hidden_size", "num_layers", "block", "causal"}) lines.option(key, options.at(key));
  lines.count("intermediate_size", c.intermediate_size());
  lines.option("activation", options.at("activation"));
  const nlohmann::json plain = model_options().write({});  // of the rest what is not as it mostly is
  for (const char* key : {"embedding_size", "embedding_norm", "positions", "first_position", "token_types",
                          "norm_place", "shared_layers", "head"})
    if (options.at(key) != plain.at(key)) lines.option(key, options.at(key));
  lines.count("vocab_size", c.vocab_size);
  lines.count("context", c.context);
  nlohmann::json attention = c.attention;  // what is derived is shown as it comes out
  attention.update({{"head_dim", head_width(c)}, {"num_kv_heads", kv_heads(c)}});
  for (const auto& item : attention.items())
    if (item.key() != "mechanism") lines.option("attention." + item.key(), item.value());
  lines.count("parameters", cost.parameters);
  for (const auto& [part, n] : cost.parts) lines.count("parameters." + part, n);
  lines.row("flops_per_token", short_count(cost.flops_per_token), cost.flops_per_token);
  lines.row("kv_bytes_per_token", std::to_string(cost.cache_bytes_per_token), cost.cache_bytes_per_token);
  add_tensors(lines, checkpoint.tensors);
}

// The metadata of a GGUF file: vocabulary and chat template among them.
void add_metadata(Lines& lines, const Checkpoint& checkpoint) {
  if (checkpoint.format != "gguf") return;
  const auto& file = *static_cast<const GgufFile*>(checkpoint.tensors.files.get());
  for (const auto& [key, value] : file.metadata()) lines.row("gguf." + key, file.shown(key), file.shown(key));
}

// What attention does with the beginning of a text, a layer a row; numbers of heads as their mean.
Table probe_table(const std::filesystem::path& folder, const Checkpoint& checkpoint, const std::string& text) {
  constexpr int64_t kMostTokens = 1024;
  const Model model = load_model(checkpoint);
  const auto tokenizer = load_tokenizer(folder, checkpoint.config);
  std::vector<int32_t> ids = tokenizer->encode(load_corpus({text}).text);
  ids.resize(std::min<size_t>(ids.size(), std::min(kMostTokens, checkpoint.config.context)));
  if (ids.size() < 2) fail(text, ": has ", ids.size(), " tokens, want at least 2");
  std::vector<int64_t> wide(ids.begin(), ids.end());
  const Tensor row = at::tensor(wide).unsqueeze(0);
  const std::vector<LayerProbe> layers = probe(*model.ptr(), row);
  CloseProbe close(*model.ptr());
  close.add(row);
  const std::vector<CloseLook> looks = close.layers();
  Table table{.columns = {{"layer"}}};
  const auto number = [](double x) { return std::isfinite(x) ? Cell{fixed(x, 4), x} : Cell{"-", nullptr}; };
  for (size_t i = 0; i < layers.size(); ++i) {
    std::vector<std::pair<std::string, double>> found{{"largest_logit", layers[i].largest_logit}};
    for (const auto& [what, order] : {std::pair("logits", looks[i].logits), std::pair("states", looks[i].states)})
      found.insert(found.end(), {{motet::text(what, "_top"), order.largest[0]},
                                 {motet::text(what, "_median"), order.median},
                                 {motet::text(what, "_kurtosis"), order.kurtosis}});
    for (const auto* numbers : {&layers[i].numbers, &looks[i].numbers})
      for (const HeadNumbers& one : *numbers) found.emplace_back(one.name, one.mean());
    table.rows.push_back({{std::to_string(i + 1), i + 1}});
    for (const auto& [name, value] : found) {
      auto column = std::ranges::find(table.columns, name, &Column::name);
      if (column == table.columns.end()) column = table.columns.insert(column, {name});
      table.rows.back().resize(table.columns.size(), Cell{"-", nullptr});
      table.rows.back()[static_cast<size_t>(column - table.columns.begin())] = number(value);
    }
  }
  for (std::vector<Cell>& cells : table.rows) cells.resize(table.columns.size(), Cell{"-", nullptr});
  table.note = motet::text("Of the first ", ids.size(), " tokens of ", text,
                           "; numbers of heads are their mean (motet/probe/probe.h, closely.h).\n");
  return table;
}

// The same with a column a layer, as people read it: a model has fewer layers than there are numbers.
Table turned(const Table& by_layer) {
  Table out{.columns = {{"number", Align::left}}, .rows = {}, .title = by_layer.title, .note = by_layer.note};
  for (const std::vector<Cell>& layer : by_layer.rows) out.columns.push_back({"layer " + layer[0].shown});
  for (size_t i = 1; i < by_layer.columns.size(); ++i) {
    out.rows.push_back({by_layer.columns[i].name});
    for (const std::vector<Cell>& layer : by_layer.rows) out.rows.back().push_back(layer[i]);
  }
  return out;
}

}  // namespace

int run_inspect(const nlohmann::json& request) {
  const std::filesystem::path path = model_folder(request, "path");
  if (request.contains("probe")) {
    request_threads(request);
    const Table table = probe_table(path, open_checkpoint(path, request.value("mechanism", "")), request["probe"]);
    const TableFormat format = output_format(request);
    const bool read = format == TableFormat::table || format == TableFormat::markdown;
    print_table(read ? turned(table) : table, request);
    return 0;
  }
  Lines lines;
  const bool folder = std::filesystem::is_directory(path) || !std::filesystem::exists(path);
  lines.row(folder ? "folder" : "file", path.string(), path.string());
  const auto tensors_alone = [&] {  // tensors without a model
    const ModelFileKind kind = model_file_kind(path.string());
    return kind == ModelFileKind::safetensors || kind == ModelFileKind::safetensors_index;
  };
  if (!folder && tensors_alone()) {
    refuse_flags(request, "tensors without a model", {"mechanism"});
    add_tensors(lines, safetensors_tensors(path.string()));
  } else {
    const Checkpoint checkpoint = open_checkpoint(path, request.value("mechanism", ""));
    add_model(lines, checkpoint);
    add_metadata(lines, checkpoint);
  }
  print_table(lines.table(), request);
  return 0;
}

}  // namespace motet
