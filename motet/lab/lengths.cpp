#include "motet/lab/lengths.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/fields.h"
#include "motet/eval/perplexity/perplexity.h"
#include "motet/models/lengthen.h"

namespace motet {
namespace {

std::string loss_name(int64_t times, const std::string& scaling) {
  return text("loss{", times, "T", scaling.empty() ? "" : ", ", scaling, "}");
}

}  // namespace

LengthScaling read_scaling(const std::string& name, const std::string& place) {
  const std::vector<std::string> words = split(name, ' ');
  if (words.size() != 2) fail_usage(place, ": ", quote(name), ", want a kind and a factor, as in dynamic 4");
  return {name, {{"rope_scaling", words[0]}, {"rope_factor", words[1]}}};
}

Model with_config(ModelImpl& model, const ModelConfig& config) {
  at::NoGradGuard no_grad;
  Model other(config, model.device());
  const auto from = model.named_parameters();
  other->to(from.begin()->value().scalar_type());
  for (auto& item : other->named_parameters()) item.value().set_data(from[item.key()].detach());
  return other;
}

Lengths read_lengths(const nlohmann::json& given) {
  if (!given.is_object()) fail_usage("lengths: want a table");
  Lengths out;
  for (const auto& [key, value] : given.items()) {
    const auto all = [&](const auto& holds) { return value.is_array() && std::ranges::all_of(value, holds); };
    if (key == "times" && all([](const auto& one) { return one.is_number_integer(); })) {
      out.times = value.get<std::vector<int64_t>>();
    } else if (key == "tokens" && value.is_number_integer() && value > 1) {
      out.tokens = value;
    } else if (key == "scaling" && all([](const auto& one) { return one.is_string(); })) {
      for (const std::string name : value) out.scalings.push_back(read_scaling(name, "lengths.scaling"));
    } else if (key == "times" || key == "tokens" || key == "scaling") {
      fail_usage("lengths.", key, ": ", value.dump(),
                 ", want times = [1, 8], tokens = 40000 or scaling = [\"dynamic 4\"]");
    } else {
      fail_usage(unknown_name("option", "lengths." + key, {"lengths.times", "lengths.tokens", "lengths.scaling"}));
    }
  }
  for (const int64_t times : out.times)
    if (times < 1 || times > 1024) fail_usage("lengths.times: ", times, ", want 1 to 1024");
  return out;
}

void check_lengths(const ModelConfig& config, int64_t trained, const Lengths& lengths) {
  for (const LengthScaling& scaling : lengths.scalings)
    for (const int64_t times : lengths.times) lengthened(config, times * trained, scaling.options);
  if (lengths.tokens <= std::ranges::max(lengths.times) * trained)
    fail_usage("lengths.tokens: ", lengths.tokens, ", want more than the longest window");
}

std::map<std::string, double> losses_at(ModelImpl& model, int64_t trained, const TokenSequence& validation,
                                        const Lengths& lengths) {
  const auto count = std::min<uint64_t>(static_cast<uint64_t>(lengths.tokens), validation.size());
  std::vector<int64_t> tokens = validation.slice(0, count);
  std::map<std::string, double> out;
  std::vector<LengthScaling> all{{"", nlohmann::json::object()}};
  all.insert(all.end(), lengths.scalings.begin(), lengths.scalings.end());
  for (const LengthScaling& scaling : all) {
    if (!scaling.name.empty() && model.config().attention.at("rope_fraction") == 0) continue;
    for (const int64_t times : lengths.times) {
      const Model own = with_config(model, lengthened(model.config(), times * trained, scaling.options));
      const double nats = nats_of_windows(*own.ptr(), tokens, {.context = times * trained, .stride = trained});
      out[loss_name(times, scaling.name)] = nats;
    }
  }
  return out;
}

std::vector<std::string> metrics_of(const Lengths& lengths) {
  std::vector<std::string> out;
  for (const int64_t times : lengths.times) {
    out.push_back(loss_name(times, ""));
    for (const LengthScaling& scaling : lengths.scalings) out.push_back(loss_name(times, scaling.name));
  }
  return out;
}

}  // namespace motet
