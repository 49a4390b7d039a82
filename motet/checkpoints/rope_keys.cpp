#include "motet/checkpoints/published.h"
#include "motet/core/error.h"

// The rotary embedding in config.json: rope_theta and rope_scaling (older), or rope_parameters.
namespace motet {
namespace {

using nlohmann::json;

constexpr const char* kNewFraction = "partial_rotary_factor";

struct RopePlace {
  Published* object;  // null: not there
  std::string key;
};

// A value that several places may give: different numbers are a contradiction.
double agreed(const std::vector<RopePlace>& places, double min, double max, double otherwise) {
  std::optional<double> agreed;
  std::string first;
  for (const auto& [object, key] : places) {
    if (!object || !object->has(key)) continue;
    const double value = object->number(key, min, max);
    if (agreed && value != *agreed)
      fail(object->where(), ": ", first, " is ", *agreed, " and ", object->at(key), " is ", value,
           ", want one of them");
    if (!agreed) first = object->at(key);
    agreed = value;
  }
  return agreed.value_or(otherwise);
}

void read_scaling(Published& s, int64_t max_position, json& attention) {
  const std::string type = s.has("rope_type") ? s.word("rope_type") : s.word("type", "default");
  if (s.has("rope_type") && s.has("type") && s.word("type") != type) s.refuse("type", "what rope_type says");
  s.ignore({"type", "rope_theta", kNewFraction});
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
  Published *older = scaling ? &*scaling : nullptr, *newer = parameters ? &*parameters : nullptr;
  attention["rope_base"] = agreed({{&c, keys.base}, {older, "rope_theta"}, {newer, "rope_theta"}}, 1, 1e12, 10000);
  const std::vector<RopePlace> fractions{{&c, keys.fraction}, {older, kNewFraction}, {newer, kNewFraction}};
  attention["rope_fraction"] = agreed(fractions, 0, 1, keys.fraction_otherwise);
  for (const auto& [object, key] : fractions)
    if (keys.whole && object && object->has(key) && attention["rope_fraction"] != 1.0)
      object->refuse(key, "1, for the code of this model rotates whole heads");
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

void check_rope_fraction(const ModelConfig& c, const std::string& where) {
  const double fraction = c.attention.at("rope_fraction");
  const auto turned = static_cast<int64_t>(static_cast<double>(head_width(c)) * fraction);
  if (fraction < 1 && turned % 2)
    fail(where, ": a rotary fraction of ", fraction, " gives ", turned, " of a head's ", head_width(c),
         " dimensions, want an even number");
}

void write_rope(const ModelConfig& config, const RopeKeys& keys, json& out) {
  const ModelConfig c = normal(config);
  const json& a = c.attention;
  const std::string type = a.at("rope_scaling");
  const double factor = a.at("rope_factor");
  out["max_position_embeddings"] = c.context;
  out["rope_scaling"] = nullptr;
  out[keys.base] = a.at("rope_base");
  if (!keys.whole) out[keys.fraction] = a.at("rope_fraction");
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
