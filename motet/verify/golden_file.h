#pragma once
#include <nlohmann/json.hpp>

#include "motet/formats/safetensors.h"
#include "motet/ops/torch.h"
#include "motet/verify/spec.h"

namespace motet {

/// A recorded file: its metadata checked, its inputs as leaves that gradients reach. Every complaint is an Error.
class GoldenFile {
 public:
  /// Inputs and weights are cast to `type` (from their stored values, through float64); references stay float64.
  GoldenFile(const SafetensorsFile&, at::ScalarType type, at::Device = at::kCPU);

  at::ScalarType type() const { return type_; }
  at::Device device() const { return device_; }  // of all inputs; references are on the CPU
  const nlohmann::json& spec() const { return spec_; }
  /// The spec with whole top-level entries replaced by those of `overrides`.
  nlohmann::json spec_with(const nlohmann::json& overrides) const;
  /// Output -> overrides.
  const nlohmann::json& variants() const { return variants_; }
  /// The output whose sum with the cotangent was differentiated.
  const std::string& grad_of() const { return grad_of_; }
  bool zero_gradient(const std::string& name) const;
  std::vector<std::string> names_with_role(const std::string& role) const;

  /// A tensor the program reads. Floating ones with a recorded gradient require it.
  Tensor input(const std::string& name) const;
  /// The same in the layout `to`; by its name, or by the entry of the spec that names it.
  Tensor input(const std::string& name, const std::string& to) const;
  Tensor input(const Spec& name, const std::string& to) const;
  bool has_reference(const std::string& name) const { return stored_.find(name) != nullptr; }
  /// A recorded result, float64 (bool stays bool).
  Tensor reference(const std::string& name) const;
  /// Axes of a tensor; `otherwise` when the file does not say.
  std::string layout(const std::string& name, const std::string& otherwise) const;

 private:
  const SafetensorsFile& stored_;
  at::ScalarType type_;
  at::Device device_;
  nlohmann::json spec_, roles_, variants_, zero_grads_;
  std::string grad_of_;
  std::map<std::string, Tensor> leaves_;
};

inline const std::string kGradientPrefix = "grad.";

}  // namespace motet
