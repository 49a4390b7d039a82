#include "motet/verify/golden_file.h"

#include <algorithm>
#include <cstring>

#include "motet/core/error.h"
#include "motet/formats/json.h"
#include "motet/verify/layouts.h"

namespace motet {
namespace {

using nlohmann::json;

at::ScalarType stored_type(const TensorView& view) {
  static const std::map<std::string, at::ScalarType> types{
      {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf}, {"BF16", at::kBFloat16}, {"I64", at::kLong},
      {"I32", at::kInt},    {"I16", at::kShort}, {"I8", at::kChar},  {"U8", at::kByte},       {"BOOL", at::kBool}};
  const auto found = types.find(view.dtype);
  if (found == types.end())
    fail("tensor ", quote(view.name), " has the dtype ", view.dtype, ", which verify does not read");
  return found->second;
}

// Of the tensors: what a computation takes, and what was recorded of it. Another word would leave a tensor out.
const std::vector<std::string> kRoles{"input", "weight", "bias", "table", "mask", "cotangent", "output", "mid", "grad"};

Tensor loaded(const SafetensorsFile& file, const std::string& name) {
  const TensorView* view = file.find(name);
  if (!view) fail("tensor ", quote(name), " is missing");
  const Tensor t = at::empty(view->shape, at::TensorOptions().dtype(stored_type(*view)));
  if (t.nbytes() > 0) std::memcpy(t.mutable_data_ptr(), view->bytes.data(), t.nbytes());
  return t.is_floating_point() ? t.to(at::kDouble) : t;
}

json metadata(const SafetensorsFile& file, const char* key, json otherwise = {}) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end() && otherwise.is_null())
    fail("the metadata has no '", key, "', so this is no golden file");
  return found == file.metadata().end() ? otherwise : parse_json(found->second, std::string("metadata ") + key);
}

}  // namespace

GoldenFile::GoldenFile(const SafetensorsFile& stored, at::ScalarType type, at::Device device)
    : stored_(stored),
      type_(type),
      device_(device),
      spec_(metadata(stored, "spec")),
      roles_(metadata(stored, "roles")),
      variants_(metadata(stored, "variants", json::object())),
      zero_grads_(metadata(stored, "zero_grads", json::array())) {
  for (const auto& [value, name] :
       {std::pair(&spec_, "spec"), std::pair(&roles_, "roles"), std::pair(&variants_, "variants")})
    if (!value->is_object()) fail("the metadata '", name, "' is no JSON object");
  Spec(zero_grads_, "zero_grads").words();
  for (const auto& [name, overrides] : variants_.items())
    if (!overrides.is_object()) fail("variants.", name, " is no JSON object");
  for (const auto& [name, role] : roles_.items()) {
    const Spec said(role, "roles." + name);
    const std::string kind = said.word();
    if (std::ranges::find(kRoles, kind) == std::end(kRoles)) said.refuse(joined(kRoles));
    if (!stored.find(name)) fail("tensor ", quote(name), " with the role ", quote(kind), " is missing");
  }
  for (const TensorView& view : stored.tensors())
    if (!roles_.contains(view.name)) fail("tensor ", quote(view.name), " has no role, want one of ", joined(kRoles));
  if (!names_with_role("grad").empty() || stored.metadata().contains("grad_of"))
    grad_of_ = Spec(metadata(stored, "grad_of"), "grad_of").word();
  for (const char* role : {"input", "weight", "bias"})
    for (const std::string& name : names_with_role(role)) {
      Tensor leaf = loaded(stored, name).to(device);
      if (leaf.is_floating_point()) leaf = leaf.to(type).requires_grad_(stored.find(kGradientPrefix + name) != nullptr);
      leaves_[name] = leaf;
    }
}

json GoldenFile::spec_with(const json& overrides) const {
  json changed = spec_;
  changed.update(overrides);
  return changed;
}

bool GoldenFile::zero_gradient(const std::string& name) const {
  return std::find(zero_grads_.begin(), zero_grads_.end(), json(name)) != zero_grads_.end();
}

std::vector<std::string> GoldenFile::names_with_role(const std::string& role) const {
  std::vector<std::string> names;
  for (const auto& [name, own] : roles_.items())
    if (own == role) names.push_back(name);
  return names;
}

Tensor GoldenFile::input(const std::string& name) const {
  if (const auto found = leaves_.find(name); found != leaves_.end()) return found->second;
  const Tensor t = loaded(stored_, name).to(device_);
  return t.is_floating_point() ? t.to(type_) : t;
}

Tensor GoldenFile::input(const std::string& name, const std::string& to) const {
  return arranged(input(name), layout(name, to), to, name);
}

Tensor GoldenFile::input(const Spec& name, const std::string& to) const {
  if (!stored_.find(name.word())) fail("tensor ", quote(name.word()), ", named by ", name.place(), ", is missing");
  return input(name.word(), to);
}

Tensor GoldenFile::reference(const std::string& name) const { return loaded(stored_, name); }

std::string GoldenFile::layout(const std::string& name, const std::string& otherwise) const {
  if (!spec_.contains("layouts")) return otherwise;
  const Spec layouts(spec_["layouts"], "spec.layouts");
  return layouts.has(name) ? layouts[name].word() : otherwise;
}

}  // namespace motet
