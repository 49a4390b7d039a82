#include "motet/checkpoints/eight_bits.h"

#include "motet/core/error.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr const char *kDeclared = "quantization_config", *kScale = "_scale";

const json& declaration() {
  static const json all{{"quant_method", "motet"}, {"weights", "int8"}, {"version", 1}};
  return all;
}

// The first row whose scale is no finite number of at least 0, or -1.
int64_t wrong_row(const Tensor& scale) {
  const Tensor wrong = at::isfinite(scale).logical_and_(scale >= 0).logical_not_().nonzero();
  return wrong.numel() > 0 ? wrong[0].item<int64_t>() : -1;
}

// Both as they lie in the file; only the scales are looked at.
Matrix checked(const std::string& what, const Tensor& values, const Tensor& scale) {
  if (const int64_t row = wrong_row(scale); row >= 0)
    fail(what, kScale, " has ", scale[row].item<float>(), " in row ", row, ", want finite numbers of at least 0");
  return {values, scale, true, true};
}

StoredTensor joined_with(const StoredTensor& scale, const StoredTensor& values, const std::string& what) {
  if (values.shape.size() != 2)
    fail(what, " has dtype I8 and shape ", text(at::IntArrayRef(values.shape)), ", want [N,K]");
  if (scale.stored_as != "F32") fail(what, kScale, " has dtype ", scale.stored_as, ", want F32");
  if (scale.shape != std::vector<int64_t>{values.shape[0]})
    fail(what, kScale, " has shape ", text(at::IntArrayRef(scale.shape)), ", want [", values.shape[0],
         "], a scale for each row");
  const auto kept = [=, values = values.load, scale = scale.load] { return checked(what, values(), scale()); };
  const auto load = [kept] {
    at::NoGradGuard no_grad;
    return widened(kept());
  };
  return {values.shape, at::kFloat, load, values.stored_as, kept};
}

Matrix in_8_bits(const std::string& name, const std::function<Tensor()>& load) {
  const Tensor w = load().to(at::kFloat).contiguous();
  WeightArena arena(arena_bytes(WeightType::int8, w.size(0), w.size(1)));
  Matrix made = kept_in(WeightType::int8, w, arena);
  if (const int64_t row = wrong_row(made.scale_N); row >= 0)
    fail("tensor ", name, " has an infinite number or NaN in row ", row, ", which 8 bits cannot hold");
  return made;
}

}  // namespace

void declare_8_bits(json& config, const ModelConfig& c) {
  config["model_type"] = "motet";
  config["architectures"] = {c.causal() ? "MotetForCausalLM" : "MotetForMaskedLM"};
  config["torch_dtype"] = "float32";
  config[kDeclared] = declaration();
}

bool take_declared(json& config, const std::string& where) {
  if (!config.is_object() || !config.contains(kDeclared)) return false;
  const json said = config[kDeclared];
  config.erase(kDeclared);
  if (said.is_null()) return false;
  if (!said.is_object()) fail(where, ": ", kDeclared, " is ", quote(said.dump()), ", want an object");
  for (const auto& [key, wanted] : declaration().items())
    if (const json own = said.value(key, json()); own != wanted)
      fail(where, ": ", kDeclared, ".", key, " is ", quote(own.dump()), ", want ", quote(wanted.dump()),
           ", as motet convert --weights int8 writes it");
  for (const auto& item : said.items())
    if (!declaration().contains(item.key())) fail(where, ": unknown key ", quote(item.key()), " in ", kDeclared);
  return true;
}

void join_scales(Tensors& tensors) {
  std::map<std::string, StoredTensor> made;
  for (const auto& [name, stored] : tensors.all) {
    if (stored.dtype != at::kChar) continue;
    const std::string what = tensors.where + ": tensor " + name;
    const auto scale = tensors.all.find(name + kScale);
    if (scale == tensors.all.end()) fail(what, kScale, ", the scales of ", name, ", is missing");
    made[name] = joined_with(scale->second, stored, what);
  }
  for (const auto& [name, joined] : made) {
    tensors.all.erase(name + kScale);
    tensors.all[name] = joined;
  }
}

std::map<std::string, LinearImpl*> matrices_of(ModelImpl& model) {
  std::map<std::string, LinearImpl*> all;
  for (const auto& item : model.named_modules())
    if (auto* linear = item.value()->as<LinearImpl>()) all[item.key() + ".weight"] = linear;
  return all;
}

std::vector<TensorPromise> promises_in_8_bits(const std::string& name, const std::function<Tensor()>& load) {
  const std::vector<int64_t> shape = load().sizes().vec();  // released at once
  if (shape.size() != 2) fail("tensor ", name, " has shape ", text(at::IntArrayRef(shape)), ", want [N,K]");
  const auto values = [=](const TensorPromise::Take& take) { take(host_bytes(in_8_bits(name, load).values_NK)); };
  const auto scale = [=](const TensorPromise::Take& take) { take(host_bytes(in_8_bits(name, load).scale_N)); };
  return {{name, "I8", shape, values}, {name + kScale, "F32", {shape[0]}, scale}};
}

}  // namespace motet
