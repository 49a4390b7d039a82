#include "motet/verify/verify.h"

#include <algorithm>
#include <filesystem>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/words.h"
#include "motet/ops/failure.h"
#include "motet/verify/layouts.h"
#include "motet/verify/measure.h"
#include "motet/verify/model_verification.h"
#include "motet/verify/programs.h"

namespace motet {
namespace {

using nlohmann::json;

// Recorded tensor -> the quantity it holds.
using Recorded = std::map<std::string, std::string>;

Recorded recorded(const Spec& spec, const char* key) {
  Recorded all;
  if (!spec.has(key)) return all;
  for (const std::string& name : spec[key].keys()) all[name] = spec[key][name].word();
  return all;
}

// Recorded rotary tables are results of ours too.
void add_rope_tables(const Spec& spec, Recorded& mids) {
  if (!spec.has("rope") || !spec["rope"].has("tables")) return;
  const std::vector<std::string> names = spec["rope"]["tables"].words();
  if (names.size() != 2) spec["rope"]["tables"].refuse("cos and sin");
  mids[names[0]] = "rope_cos";
  mids[names[1]] = "rope_sin";
}

Quantities quantities(const Recorded& a, const Recorded& b) {
  Quantities wanted;
  for (const Recorded* all : {&a, &b})
    for (const auto& [name, quantity] : *all) wanted.insert(quantity);
  return wanted;
}

// One run over a file; `report` collects.
class Verification {
 public:
  Verification(const GoldenFile& file, const VerifyOptions& options, FileReport& report)
      : file_(file), spec_(file.spec(), "spec"), options_(options), report_(report) {}

  void run() {
    report_.program = spec_["program"].word();
    check_program(spec_);
    outputs_ = recorded(spec_, "outputs");
    mids_ = recorded(spec_, "mids");
    add_rope_tables(spec_, mids_);
    if (spec_.has("mechanism")) report_.mechanism = spec_["mechanism"].word();
    check_complete();
    const Evaluation base = evaluation(spec_, quantities(outputs_, mids_), outputs_.contains(file_.grad_of()));
    for (const auto& [name, quantity] : outputs_) compare(base, name, quantity, report_.outputs);
    for (const auto& [name, quantity] : mids_) compare(base, name, quantity, report_.mids);
    for (const auto& [name, overrides] : file_.variants().items()) compare_variant(name, overrides);
    if (spec_.has("checks"))
      for (const std::string& name : spec_["checks"].keys()) check_mask(name, spec_["checks"][name].value());
    compare_gradients();
    if (!report_.worst()) fail("nothing is recorded that could be compared, want an output or a gradient");
  }

 private:
  // Every recorded result must be one that is recomputed.
  void check_complete() const {
    for (const std::string& name : file_.names_with_role("output"))
      if (!outputs_.contains(name) && !file_.variants().contains(name))
        fail("output ", quote(name), " is neither in spec.outputs nor in variants");
    for (const std::string& name : file_.names_with_role("mid"))
      if (!mids_.contains(name) && !outputs_.contains(name)) fail("intermediate ", quote(name), " is not in spec.mids");
    const std::string& of = file_.grad_of();
    if (!of.empty() && !outputs_.contains(of) && !file_.variants().contains(of))
      fail("grad_of names ", quote(of), ", which is no output");
    if (!of.empty() && file_.names_with_role("grad").empty())
      fail("grad_of names ", quote(of), ", but no gradient is recorded");
    for (const std::string& name : file_.names_with_role("grad"))
      if (name.rfind(kGradientPrefix, 0) != 0)
        fail("gradient ", quote(name), " does not begin with '", kGradientPrefix, "'");
  }

  Evaluation evaluation(const Spec& spec, const Quantities& wanted, bool differentiate) const {
    check_interrupt();
    at::AutoGradMode mode(differentiate);
    Evaluation made = evaluate(file_, spec, wanted);
    if (differentiate) made.backward(differentiated(made.quantity(quantity_of(file_.grad_of()))));
    return made;
  }

  // sum(out * cotangent)
  Tensor differentiated(const Quantity& quantity) const {
    const std::vector<std::string> names = file_.names_with_role("cotangent");
    if (names.size() != 1) fail("the file has ", names.size(), " tensors with the role cotangent, want 1");
    const Tensor stored = file_.input(names[0]);
    const Tensor cotangent = arranged(stored, file_.layout(names[0], quantity.layout), quantity.layout, names[0]);
    if (cotangent.sizes() != quantity.value.sizes())
      fail("tensor ", quote(names[0]), " has the shape ", cotangent.sizes(), ", the output that it weighs ",
           quantity.value.sizes());
    if (!quantity.value.requires_grad())
      fail("no gradient is recorded for anything that ", quote(file_.grad_of()), " depends on");
    return (quantity.value * cotangent).sum();
  }

  std::string quantity_of(const std::string& output) const {
    const auto found = outputs_.find(output);
    return found == outputs_.end() ? "out" : found->second;
  }

  Tensor as_recorded(const Quantity& quantity, const std::string& name) const {
    return arranged(quantity.value, quantity.layout, file_.layout(name, quantity.layout), name);
  }

  void add(Findings& findings, const std::string& name, double error, double tolerance = 0) const {
    findings.all.push_back({name, error, std::max(tolerance, options_.tolerance)});
  }

  void compare(const Evaluation& made, const std::string& name, const std::string& quantity, Findings& findings,
               double tolerance = 0) const {
    const Quantity& ours = made.quantity(quantity);
    add(findings, name, output_error(ours.value.defined() ? as_recorded(ours, name) : Tensor(), file_.reference(name)),
        tolerance);
  }

  void compare_variant(const std::string& name, const json& overrides) {
    const json changed = file_.spec_with(overrides);
    const std::string quantity = quantity_of(name);
    const Evaluation made = evaluation(Spec(changed, "spec"), {quantity}, name == file_.grad_of());
    const Spec given(overrides, "variants." + name);
    compare(made, name, quantity, report_.variants, given.has("tolerance") ? given["tolerance"].number() : 0);
  }

  void check_mask(const std::string& name, const json& overrides) {
    const json changed = file_.spec_with(overrides);
    const Quantity visible = evaluation(Spec(changed, "spec"), {"visible"}, false).quantity("visible");
    const Tensor want = file_.input(name, visible.layout).to(at::kBool).expand_as(visible.value);
    const int64_t differing = (want != visible.value).sum().item<int64_t>();
    add(report_.masks, name, differing == 0 ? 0 : std::numeric_limits<double>::infinity());
  }

  void compare_gradients() {
    double largest = 0;
    const std::vector<std::string> names = file_.names_with_role("grad");
    for (const std::string& name : names) largest = std::max(largest, largest_magnitude(file_.reference(name)));
    for (const std::string& name : names) {
      const Tensor ours = file_.input(name.substr(kGradientPrefix.size())).grad();
      add(report_.gradients, name, gradient_error(ours, file_.reference(name), largest, file_.zero_gradient(name)));
    }
  }

  const GoldenFile& file_;
  Spec spec_;
  Recorded outputs_, mids_;
  const VerifyOptions& options_;
  FileReport& report_;
};

}  // namespace

// float32: logits of 3e4 in one recorded file cost three digits; the others stay near 1e-6. bfloat16: near 2e-2.
double default_tolerance(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-10 : dtype == at::kFloat ? 2e-3 : 5e-2;
}

FileReport verify_file(const std::string& path, const VerifyOptions& options) {
  if (is_model_folder(path)) return verify_model_folder(path, options);
  const SafetensorsFile stored(path);
  FileReport report{.path = path};
  try {
    const GoldenFile file(stored, options.dtype, options.device);
    Verification(file, options, report).run();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    fail(path, ": ", told(error));
  }
  return report;
}

std::vector<std::string> golden_files(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      if (!fs::exists(path)) fail(quote(path), ": there is no such file or folder");
      files.push_back(path);
      continue;
    }
    if (is_model_folder(path)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> own;
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".safetensors" || is_model_folder(entry.path().string()))
        own.push_back(entry.path().string());
    if (own.empty()) fail(quote(path), ": the folder has no *.safetensors and no model folders");
    std::sort(own.begin(), own.end());
    files.insert(files.end(), own.begin(), own.end());
  }
  return files;
}

}  // namespace motet
