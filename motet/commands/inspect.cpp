#include "motet/checkpoints/model_folder.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/models/cost.h"

namespace motet {

int run_inspect(const nlohmann::json& request) {
  const std::filesystem::path folder = model_folder(request, "path");
  Model model = load_model_folder(folder);
  const ModelConfig& c = model->config();
  const ModelCost cost = model_cost(*model);
  Table table{.columns = {{"what", Align::left}, {"value", Align::left}}};
  const auto row = [&](const std::string& what, const std::string& shown, const nlohmann::json& value) {
    table.rows.push_back({what, {shown, value}});
  };
  const auto count = [&](const std::string& what, int64_t n) { row(what, short_count(static_cast<double>(n)), n); };
  row("folder", folder.string(), folder.string());
  row("mechanism", c.attention.at("mechanism"), c.attention.at("mechanism"));
  for (const char* key : {"hidden_size", "num_layers", "block", "causal"})
    row(key, c.options.at(key).is_string() ? c.options.at(key).get<std::string>() : c.options.at(key).dump(),
        c.options.at(key));
  count("intermediate_size", c.intermediate_size());
  count("vocab_size", c.vocab_size);
  count("context", c.context);
  for (const auto& item : c.attention.items())
    if (item.key() != "mechanism")
      row("attention." + item.key(), item.value().is_string() ? item.value().get<std::string>() : item.value().dump(),
          item.value());
  count("parameters", cost.parameters);
  for (const auto& [part, n] : cost.parts) count("parameters." + part, n);
  row("flops_per_token", short_count(cost.flops_per_token), cost.flops_per_token);
  row("kv_bytes_per_token", std::to_string(cost.cache_bytes_per_token), cost.cache_bytes_per_token);
  print_table(table, request);
  return 0;
}

}  // namespace motet
