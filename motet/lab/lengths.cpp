#include "motet/lab/lengths.h"

#include "motet/core/error.h"
#include "motet/core/fields.h"
#include "motet/core/interrupt.h"
#include "motet/eval/perplexity/perplexity.h"
#include "motet/models/lengthen.h"

namespace motet {
namespace {

// The same parameters in a model of another configuration.
Model with_config(ModelImpl& model, const ModelConfig& config) {
  at::NoGradGuard no_grad;
  Model other(config, model.device());
  const auto from = model.named_parameters();
  other->to(from.begin()->value().scalar_type());
  for (auto& item : other->named_parameters()) item.value().set_data(from[item.key()].detach());
  return other;
}

}  // namespace

Lengths read_lengths(const nlohmann::json& given) {
  if (!given.is_object()) fail_usage("lengths: want a table");
  Lengths out;
  for (const auto& [key, value] : given.items()) {
    if (key == "times" && value.is_array()) {
      out.times = value.get<std::vector<int64_t>>();
    } else if (key == "tokens" && value.is_number_integer()) {
      out.tokens = value;
    } else if (key == "scaling" && value.is_array()) {
      for (const std::string name : value) {
        const std::vector<std::string> words = split(name, ' ');
        if (words.size() != 2)
          fail_usage("lengths.scaling: ", quote(name), ", want a kind and a factor, as in dynamic 4");
        out.scalings.push_back({name, {{"rope_scaling", words[0]}, {"rope_factor", words[1]}}});
      }
    } else {
      fail_usage(unknown_name("option", "lengths." + key, {"lengths.times", "lengths.tokens", "lengths.scaling"}));
    }
  }
  for (const int64_t times : out.times)
    if (times < 1 || times > 1024) fail_usage("lengths.times: ", times, ", want 1 to 1024");
  return out;
}

std::map<std::string, double> losses_at(ModelImpl& model, const TokenSequence& validation, const Lengths& lengths) {
  const int64_t trained = model.config().context;
  const auto count = std::min<uint64_t>(static_cast<uint64_t>(lengths.tokens), validation.size());
  std::vector<int64_t> tokens = validation.slice(0, count);
  std::map<std::string, double> out;
  std::vector<Lengths::Scaling> all{{"", nlohmann::json::object()}};
  all.insert(all.end(), lengths.scalings.begin(), lengths.scalings.end());
  for (const Lengths::Scaling& scaling : all) {
    if (!scaling.name.empty() && model.config().attention.at("rope_fraction") == 0) continue;
    for (const int64_t times : lengths.times) {
      const Model own = with_config(model, lengthened(model.config(), times * trained, scaling.options));
      const double nats = nats_of_windows(*own.ptr(), tokens, times * trained, trained);
      out[text("loss{", times, "T", scaling.name.empty() ? "" : ", ", scaling.name, "}")] = nats;
    }
  }
  return out;
}

}  // namespace motet
