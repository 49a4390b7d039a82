#include "motet/checkpoints/published.h"
#include "motet/core/error.h"

// The rotary embedding in config.json: rope_theta and rope_scaling (older), or rope_parameters.
namespace motet {
namespace {

using nlohmann::json;

// A value that two places may give: both with different numbers is a contradiction.
double agreed(Published& c, const std::string& old_key, Published* parameters, const std::string& new_key,
              double otherwise, double min, double max) {
  const bool old_given = c.has(old_key), new_given = parameters && parameters->has(new_key);
  const double old_value = c.number(old_key, min, max, otherwise);
  if (!new_given) return old_value;
  const double value = parameters->number(new_key, min, max);
  if (old_given && value != old_value)
    fail(c.where(), ": ", old_key, " is ", old_value, " and ", parameters->at(new_key), " is ", value,
         ", want one of them");
  return value;
}

void read_scaling(Published& s, int64_t max_position, json& attention) {
  const std::string type = s.has("rope_type") ? s.word("rope_type") : s.word("type", "default");
  if (s.has("rope_type") && s.has("type") && s.word("type") != type) s.refuse("type", "what rope_type says");
  s.ignore({"type", "rope_theta", "partial_rotary_factor"});
  if (type == "default") return;
  if (type != "linear" && type != "dynamic" && type != "llama3" && type != "ntk")
    s.refuse(s.has("rope_type") ? "rope_type" : "type",
             "default, linear, dynamic, llama3 or ntk; others are not supported");
  attention["rope_scaling"] = type;
  attention["rope_factor"] = s.number("factor", 1, 1e6);
  if (type == "dynamic") attention["rope_trained_length"] = max_position;
  if (type == "llama3") {
    attention["rope_trained_length"] = s.integer("original_max_position_embeddings", 1, 1e9, max_position);
    attention["rope_low_freq_factor"] = s.number("low_freq_factor", 1e-6, 1e6);
    attention["rope_high_freq_factor"] = s.number("high_freq_factor", 1e-6, 1e6);
    if (attention["rope_high_freq_factor"] <= attention["rope_low_freq_factor"])
      s.refuse("high_freq_factor", "more than low_freq_factor");
  } else {
    s.ignore({"original_max_position_embeddings", "low_freq_factor", "high_freq_factor"});
  }
  s.warn_of_the_rest();
}

}  // namespace

int64_t read_rope(Published& c, const RopeKeys& keys, int64_t max_position, json& attention) {
  std::optional<Published> parameters, scaling;
  if (c.has("rope_parameters")) parameters = c.object("rope_parameters");
  if (c.has("rope_scaling")) scaling = c.object("rope_scaling");
  c.ignore({"rope_parameters", "rope_scaling"});
  Published* newer = parameters ? &*parameters : nullptr;
  attention["rope_base"] = agreed(c, keys.base, newer, "rope_theta", 10000, 1, 1e12);
  attention["rope_fraction"] = agreed(c, keys.fraction, newer, "partial_rotary_factor", keys.fraction_otherwise, 0, 1);
  json by_scaling = json::object(), by_parameters = json::object();
  if (scaling) read_scaling(*scaling, max_position, by_scaling);
  if (parameters) read_scaling(*parameters, max_position, by_parameters);
  if (scaling && parameters && by_scaling != by_parameters)
    fail(c.where(), ": rope_scaling and rope_parameters differ, want one of them");
  attention.update(scaling ? by_scaling : by_parameters);
  const std::string type = attention.value("rope_scaling", "none");
  if (type != "linear" && type != "dynamic" && type != "ntk") return max_position;
  return static_cast<int64_t>(static_cast<double>(max_position) * attention["rope_factor"].get<double>());
}

void write_rope(const ModelConfig& config, const RopeKeys& keys, json& out) {
  const ModelConfig c = normal(config);
  const json& a = c.attention;
  const std::string type = a.at("rope_scaling");
  const double factor = a.at("rope_factor");
  out["max_position_embeddings"] = c.context;
  out["rope_scaling"] = nullptr;
  out[keys.base] = a.at("rope_base");
  if (a.at("rope_fraction") != keys.fraction_otherwise || keys.fraction_otherwise != 1)
    out[keys.fraction] = a.at("rope_fraction");
  if (type == "none") return;
  if (type == "ntk")
    fail(
        "attention.rope_scaling is ntk, which the code of published models does not know, want none, linear, dynamic "
        "or llama3");
  json scaling{{"rope_type", type}, {"factor", factor}};
  if (type == "llama3") {
    scaling["low_freq_factor"] = a.at("rope_low_freq_factor");
    scaling["high_freq_factor"] = a.at("rope_high_freq_factor");
    scaling["original_max_position_embeddings"] = a.at("rope_trained_length");
  } else if (type == "dynamic") {
    out["max_position_embeddings"] = a.at("rope_trained_length");
  } else {
    out["max_position_embeddings"] = static_cast<int64_t>(std::ceil(static_cast<double>(c.context) / factor));
  }
  out["rope_scaling"] = scaling;
}

}  // namespace motet
