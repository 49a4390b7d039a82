#include "motet/checkpoints/retrofit.h"

#include <filesystem>

#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/text/readers/load.h"
#include "motet/text/readers/read_gguf.h"

namespace motet {
namespace {

std::optional<at::ScalarType> scalar_type(ConvertRequest::Dtype dtype) {
  switch (dtype) {
    case ConvertRequest::Dtype::keep:
      return std::nullopt;
    case ConvertRequest::Dtype::float64:
      return at::kDouble;
    case ConvertRequest::Dtype::float32:
      return at::kFloat;
    case ConvertRequest::Dtype::bfloat16:
      return at::kBFloat16;
    case ConvertRequest::Dtype::float16:
      break;
  }
  return at::kHalf;
}

const Layout& layout_of(const std::string& name) {
  try {
    return find_layout(name);
  } catch (const UsageError& error) {
    fail_usage("--to: ", error.what());
  }
}

Table list_of_layouts() {
  Table table{.columns = {{"layout", Align::left}, {"model_type", Align::left}, {"holds", Align::left}}};
  for (const Layout& layout : layouts()) table.rows.push_back({layout.name, layout.model_type, layout.summary});
  return table;
}

// The tokenizer of a .gguf or beside a model of llama2.c, as tokenizer.json; nothing when there is none that can be
// written.
ExtraFiles own_tokenizer(const Checkpoint& checkpoint, const std::string& source) {
  if (checkpoint.format != "gguf" && checkpoint.format != "llama2c") return {};
  try {
    const auto tokenizer =
        checkpoint.format == "gguf" ? read_gguf_tokenizer(GgufFile(source)) : load_tokenizer(source, checkpoint.config);
    return {{"tokenizer.json", tokenizer->to_json().dump()}};
  } catch (const Error& error) {
    log_warn(text("convert: no tokenizer.json: ", error.what()));
    return {};
  }
}

// A layout that gives padding no position must find no ordinary token there.
void check_padding(const Checkpoint& checkpoint, const Layout& to) {
  const int64_t padding = checkpoint.config.options.first_position - 1;
  if (!to.skips_padding || padding < 0 || checkpoint.folder.empty() || checkpoint.layout->skips_padding) return;
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = load_tokenizer(checkpoint.folder.string());
  } catch (const Error&) {
    return;  // without one that can be read there is nothing to compare
  }
  if (padding < tokenizer->vocabulary_size() && !tokenizer->special(static_cast<int32_t>(padding)))
    fail("--to ", to.name, ": gives token ", padding,
         ", which it takes for padding, no position, and here that token is ",
         quote(tokenizer->piece(static_cast<int32_t>(padding))), ", want a special token there");
}

}  // namespace

int run_convert(const nlohmann::json& request) {
  if (request.value("list", false)) {
    print_table(list_of_layouts(), request);
    return 0;
  }
  const ConvertRequest asked = read_request(convert_options(), request);
  if (asked.retrofit.empty()) refuse_flags(request, "a conversion without --retrofit", {"seed"});
  const std::string source = request.value("path", "");
  if (source.empty()) fail_usage("convert: PATH is missing, want a model folder, a .gguf or a llama2.c .bin");
  if (asked.out.empty()) fail_usage("--out is missing, want a new folder");
  const std::filesystem::path out = asked.out;
  if (std::filesystem::exists(out)) fail_usage("--out: ", out.string(), " exists, want a new folder");
  output_format(request);  // a wrong name is refused before the work
  request_threads(request);
  const Layout& to = layout_of(asked.to);
  if (asked.weights) refuse_flags(request, "--weights int8", {"dtype", "allow_overflow"});
  if (asked.weights && to.rows) fail_usage("--weights: int8 in the layout ", to.name, ", want --to motet");
  const Checkpoint opened = open_checkpoint(model_folder(request, "path"), asked.mechanism);
  if (asked.weights && opened.in_8_bits)
    fail_usage("--weights: int8 of ", source, ", whose weights are in 8 bits, want --dtype float32 or a copy of it");
  const std::string& retrofit = asked.retrofit;
  const Checkpoint checkpoint =
      retrofit.empty() ? opened
                       : as_checkpoint(retrofitted(opened, retrofit, static_cast<uint64_t>(asked.seed)), opened);
  if (!retrofit.empty() && !starts_equal(retrofit))
    log_warn(
        text("--retrofit ", retrofit, ": does not start equal, train the fresh t_proj first (docs/checkpoints.md)"));
  check_padding(checkpoint, to);
  const ExtraFiles tokenizer = own_tokenizer(opened, source);
  const Converted made = convert_checkpoint(checkpoint, to, out,
                                            {.dtype = scalar_type(asked.dtype),
                                             .allow_overflow = request.value("allow_overflow", false),
                                             .weights = asked.weights.value_or(WeightType::float32),
                                             .extra = tokenizer});
  Table table{.columns = {{"what", Align::left}, {"value", Align::left}}};
  const auto row = [&](const std::string& what, const std::string& shown, const nlohmann::json& value) {
    table.rows.push_back({what, {shown, value}});
  };
  row("from", source, source);
  row("format", checkpoint.format, checkpoint.format);
  if (opened.format == "safetensors") row("layout", opened.layout->name, opened.layout->name);
  if (!retrofit.empty()) row("retrofit", retrofit + (starts_equal(retrofit) ? "" : ", not equal"), retrofit);
  row("to", to.name, to.name);
  row("folder", out.string(), out.string());
  const char* config = made.restored ? "as published" : "written";
  row("config.json", config, config);
  if (!tokenizer.empty())
    row("tokenizer", opened.format == "gguf" ? "from the .gguf" : "from tokenizer.bin", opened.format);
  if (asked.weights) row("weights", name(*asked.weights), name(*asked.weights));
  row("tensors", std::to_string(made.tensors), made.tensors);
  row("numbers", short_count(static_cast<double>(made.numbers)), made.numbers);
  print_table(table, request);
  return 0;
}

}  // namespace motet
