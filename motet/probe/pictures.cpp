#include "motet/probe/pictures.h"

#include "motet/ops/device.h"

namespace motet {
namespace {

/// While it lives the model computes in its own dtype, as generate does.
class WithoutAutocast {
 public:
  explicit WithoutAutocast(ModelImpl& model) : model_(model), before_(model.config().autocast) {
    model.set_autocast({});
  }
  ~WithoutAutocast() { model_.set_autocast(before_); }
  WithoutAutocast(const WithoutAutocast&) = delete;

 private:
  ModelImpl& model_;
  const std::optional<at::ScalarType> before_;
};

}  // namespace

void add_pictures(ReportData& report, const std::string& name, ModelImpl& model, std::span<const int64_t> tokens,
                  DrawnLayers drawn) {
  at::NoGradGuard no_grad;
  const WithoutAutocast scope(model);
  const Tensor ids = ids_tensor(tokens, model.device());
  const std::vector<Tensor> inputs = model.attention_inputs(ids);
  const Positions at = Positions::range(0, ids.size(1), ids.size(1), ids.device());
  const auto& blocks = model.blocks();
  for (size_t layer = 0; layer < blocks.size(); ++layer) {
    if (drawn == DrawnLayers::first_and_last && layer != 0 && layer + 1 != blocks.size()) continue;
    Mechanism& mechanism = *blocks[layer]->self_attn;
    const AttentionMaps maps = attention_maps(mechanism.queries(inputs[layer], at), mechanism.keys(inputs[layer], at),
                                              mechanism.attention(at, at, Pass::whole));
    const bool mixes = !maps.mixed_BHTS.is_same(maps.weights_BHTS);
    for (const auto& [kind, tensor] : {std::pair("before", maps.weights_BHTS), std::pair("after", maps.mixed_BHTS)}) {
      if (kind == std::string("after") && !mixes) continue;
      for (int64_t head = 0; head < tensor.size(1); ++head) {
        const Tensor map = tensor[0][head].to(at::kCPU, at::kFloat).contiguous();
        const auto numbers = host_numbers<float>(map);
        report.pictures.push_back({name,
                                   static_cast<int>(layer),
                                   text("head ", head + 1),
                                   kind,
                                   static_cast<int>(head),
                                   static_cast<int>(map.size(0)),
                                   static_cast<int>(map.size(1)),
                                   {numbers.begin(), numbers.end()}});
      }
    }
  }
}

void add_learned(ReportData& report, const std::string& name, ModelImpl& model) {
  at::NoGradGuard no_grad;
  const auto& blocks = model.blocks();
  for (size_t layer = 0; layer < blocks.size(); ++layer)
    for (const LearnedMap& map : blocks[layer]->self_attn->learned()) {
      const Tensor values = map.values_NM.to(at::kCPU, at::kDouble).contiguous();
      const auto numbers = host_numbers<double>(values);
      report.matrices.push_back({name,
                                 static_cast<int>(layer),
                                 map.name,
                                 static_cast<int>(values.size(0)),
                                 static_cast<int>(values.size(1)),
                                 {numbers.begin(), numbers.end()}});
    }
}

}  // namespace motet
