#include "motet/lab/look.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/eval/perplexity/perplexity.h"
#include "motet/ops/device.h"
#include "motet/probe/closely.h"

namespace motet {
namespace {

constexpr int64_t kRowsAtOnce = 16;

std::string top_name(const std::string& of, int64_t rank) { return text(of, "{top ", rank, "}"); }

std::string rounded_name(const std::string& of, int64_t bits, LogitRounding::Per scale) {
  return text(of, "{", bits, " bits, ", word_of(logit_scales(), scale), "}");
}

void add_order(std::map<std::string, double>& out, const std::string& of, const OrderStatistics& s) {
  for (size_t i = 0; i < s.largest.size(); ++i) out[top_name(of, OrderStatistics::kRanks[i])] = s.largest[i];
  out[of + "{median}"] = s.median, out[of + "{kurtosis}"] = s.kurtosis;
}

}  // namespace

Look read_look(const nlohmann::json& given) {
  if (!given.is_object()) fail_usage("look: want a table");
  Look out;
  for (const auto& [key, value] : given.items()) {
    const auto all = [&](const auto& holds) { return value.is_array() && std::ranges::all_of(value, holds); };
    if (key == "tokens" && value.is_number_integer() && value > 1) {
      out.tokens = value;
    } else if (key == "bits" && all([](const auto& n) { return n.is_number_integer() && n >= 2 && n <= 16; })) {
      out.bits = value.get<std::vector<int64_t>>();
    } else if (key == "scale" && all([](const auto& word) { return word.is_string(); })) {
      out.scales.clear();
      for (const std::string word : value) out.scales.push_back(value_of(logit_scales(), word, "look.scale"));
    } else if (key == "tokens" || key == "bits" || key == "scale") {
      fail_usage("look.", key, ": ", value.dump(),
                 ", want tokens = 40000, bits = [8, 4] of 2 to 16, scale = [\"row\"]");
    } else {
      fail_usage(unknown_name("option", "look." + key, {"look.tokens", "look.bits", "look.scale"}));
    }
  }
  return out;
}

void check_look(const ModelConfig& config, const TokenSequence& validation, const Look& look) {
  if (!look.bits.empty() && !config.causal())
    fail_usage("look.bits: are of a model that tells the next token, want them left out with model.causal = false");
  if (validation.size() <= static_cast<uint64_t>(config.context))
    fail_usage("look: the validation text has ", validation.size(), " tokens, want more than the context of ",
               config.context);
  if (look.tokens <= config.context)
    fail_usage("look.tokens: ", look.tokens, ", want more than the context of ", config.context);
}

std::map<std::string, double> looked(ModelImpl& model, const TokenSequence& validation, const Look& look) {
  at::NoGradGuard no_grad;
  const int64_t context = model.config().context;
  const auto count = std::min<uint64_t>(static_cast<uint64_t>(look.tokens), validation.size());
  const std::vector<int64_t> tokens = validation.slice(0, count);
  const int64_t rows = static_cast<int64_t>(count) / context;
  const Tensor ids = ids_tensor(std::span<const int64_t>(tokens), model.device()).flatten();
  const Tensor ids_RT = ids.slice(0, 0, rows * context).view({rows, context});
  CloseProbe probe(model);
  for (int64_t row = 0; row < rows; row += kRowsAtOnce)
    probe.add(ids_RT.slice(0, row, std::min(row + kRowsAtOnce, rows)));

  std::map<std::string, double> out;
  const CloseLook found = probe.together();
  add_order(out, "logits", found.logits), add_order(out, "states", found.states);
  for (const HeadNumbers& number : found.numbers) out["probe{" + number.name + "}"] = number.mean();
  if (look.bits.empty()) return out;
  out["loss{all bits}"] = nats_of_windows(model, tokens, {});
  for (const int64_t bits : look.bits)
    for (const LogitRounding::Per scale : look.scales) {
      const double loss = nats_of_windows(model, tokens, {.rounding = {bits, scale}});
      out[rounded_name("loss", bits, scale)] = loss;
      out[rounded_name("rise", bits, scale)] = loss - out["loss{all bits}"];
    }
  return out;
}

std::vector<std::string> metrics_of(const Look& look) {
  std::vector<std::string> out{"probe{...}"};
  for (const char* of : {"logits", "states"}) {
    for (const int64_t rank : OrderStatistics::kRanks) out.push_back(top_name(of, rank));
    for (const char* number : {"{median}", "{kurtosis}"}) out.push_back(text(of, number));
  }
  if (look.bits.empty()) return out;
  out.emplace_back("loss{all bits}");
  for (const int64_t bits : look.bits)
    for (const LogitRounding::Per scale : look.scales)
      for (const char* what : {"loss", "rise"}) out.push_back(rounded_name(what, bits, scale));
  return out;
}

}  // namespace motet
