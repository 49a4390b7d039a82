#include "motet/verify/model_verification.h"

#include <cmath>
#include <filesystem>
#include <optional>

#include "motet/checkpoints/checkpoint.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/words.h"
#include "motet/formats/json.h"
#include "motet/ops/failure.h"
#include "motet/train/optimizer.h"
#include "motet/verify/golden_file.h"
#include "motet/verify/greedy.h"
#include "motet/verify/measure.h"

namespace motet {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const std::string kExpected = "expected.safetensors";

// Cross entropy of each next token, over B * (T - 1).
Tensor next_token_loss(const Tensor& logits_BTV, const Tensor& ids_BT) {
  return ops::token_loss(logits_BTV.slice(1, 0, -1), ids_BT.slice(1, 1));
}

// The recorded run decays every parameter and clips nothing.
Optimizer recorded_optimizer(ModelImpl& model, const Spec& spec) {
  const std::vector<Spec> betas = spec["betas"].items();
  if (betas.size() != 2) spec["betas"].refuse("two numbers");
  const OptimizerOptions options{.beta1 = betas[0].number(),
                                 .beta2 = betas[1].number(),
                                 .epsilon = spec["eps"].number(),
                                 .weight_decay = spec["weight_decay"].number(),
                                 .learning_rate = spec["lr"].number()};
  return Optimizer(model, options, [](const std::string&, const Tensor&) { return true; });
}

class ModelVerification {
 public:
  ModelVerification(const fs::path& folder, const GoldenFile& file, const VerifyOptions& options, FileReport& report)
      : checkpoint_(open_checkpoint(folder)),
        file_(file),
        spec_(file.spec(), "spec"),
        options_(options),
        report_(report),
        ids_(file.input("input_ids", "BT")) {}

  void run() {
    report_.program = spec_["program"].word();
    if (report_.program != "model") spec_["program"].refuse("model");
    report_.mechanism = checkpoint_.config.attention.at("mechanism");
    if (ids_.dim() != 2 || ids_.scalar_type() != at::kLong) fail("tensor 'input_ids' is no matrix of int64");
    compare_forward();
    compare_variants();
    compare_trajectory();
    compare_continuations();
    for (const char* role : {"output", "mid", "grad"})
      for (const std::string& name : file_.names_with_role(role))
        if (!seen_.contains(name))
          fail(role, " ", quote(name), " is recorded, and verify does not know how to compute it");
    if (!report_.worst()) fail("nothing is recorded that could be compared, want logits for instance");
  }

 private:
  bool recorded(const std::string& name) const { return file_.has_reference(name); }

  // The model under a window mask; models without windows have only one.
  Model& model(const std::string& mask) {
    const std::string key = checkpoint_.config.attention.at("window") == 0 ? "" : mask;
    if (const auto found = models_.find(key); found != models_.end()) return found->second;
    if (!key.empty()) checkpoint_.config.attention["window_mask"] = key;
    return models_.emplace(key, load_model(checkpoint_, {options_.dtype, options_.device})).first->second;
  }

  std::string mask_of(const char* quantity) const { return spec_["window_mask"][quantity].word(); }

  Positions positions() const { return Positions::range(0, ids_.size(1), ids_.size(1), ids_.device()); }

  void add(Findings& group, const std::string& name, double error, double tolerance = 0) {
    seen_.insert(name);
    group.all.push_back({name, error, std::max(tolerance, options_.tolerance)});
  }

  void compare(Findings& group, const std::string& name, const Tensor& ours, double tolerance = 0) {
    if (recorded(name)) add(group, name, output_error(ours.detach(), file_.reference(name)), tolerance);
  }

  Tensor recorded_part(const Tensor& logits_BTV) const {
    return logits_BTV.slice(1, spec_["logits_from_position"].integer());
  }

  void compare_forward() {
    check_interrupt();
    Model& own = model(mask_of("logits"));
    const std::vector<Tensor> states = own->states(ids_, positions());
    const Tensor logits = own->logits(own->normed(states.back()));
    compare(report_.outputs, "logits", recorded_part(logits));
    for (size_t i = 0; i < states.size(); ++i) compare(report_.mids, text("hidden.", i), states[i][0]);
    if (mask_of("logits") != mask_of("loss") || mask_of("loss") != mask_of("grad_norm"))
      spec_["window_mask"].refuse("one mask for logits, loss and grad_norm");
    const Tensor loss = next_token_loss(logits, ids_);
    compare(report_.outputs, "loss", loss);
    if (file_.names_with_role("grad").empty()) return;
    loss.backward();
    compare_gradients(*own);
    own->zero_grad();
  }

  // 2-norms of the stored tensors' own gradients: ours go through the rows as the values do.
  void compare_gradients(ModelImpl& own) {
    std::map<std::string, Tensor> gradients;
    for (const auto& item : own.named_parameters())
      gradients[item.key()] = item.value().grad().defined() ? item.value().grad() : at::zeros_like(item.value());
    const std::map<std::string, Tensor> stored = given_all(checkpoint_.rows, gradients);
    double largest = 0;
    for (const auto& [name, gradient] : stored)
      if (recorded(kNorm + name)) largest = std::max(largest, file_.reference(kNorm + name).item<double>());
    for (const auto& [name, gradient] : stored) {
      const std::string norm = kNorm + name;
      if (!recorded(norm)) fail("no ", norm, " is recorded, so the reference has no parameter ", name);
      add(report_.gradients, norm,
          gradient_error(gradient.norm(), file_.reference(norm), largest, file_.zero_gradient(norm)));
    }
  }

  void compare_variants() {
    at::NoGradGuard no_grad;
    for (const auto& [name, overrides] : file_.variants().items()) {
      check_interrupt();
      const Spec changed(overrides, "variants." + name);
      for (const std::string& key : changed.keys())
        if (key != "window_mask" && key != "rope_table" && key != "tolerance")
          fail(unknown_name("key", changed.place() + "." + key, {"window_mask", "rope_table", "tolerance"}));
      Model& own = model(changed.has("window_mask") ? changed["window_mask"].word() : mask_of("logits"));
      const Positions at = positions();
      if (changed.has("rope_table")) round_tables(*own, at);
      const Tensor logits = own->logits(own->normed(own->states(ids_, at).back()));
      const bool loss = name.starts_with("loss");
      if (!loss && !name.starts_with("logits")) fail(changed.place(), " names neither logits nor a loss");
      if (!recorded(name)) fail("tensor ", quote(name), ", a variant, is missing");
      compare(report_.variants, name, loss ? next_token_loss(logits, ids_) : recorded_part(logits),
              changed.has("tolerance") ? changed["tolerance"].number() : 0);
    }
  }

  // The released DCFormer keeps cos and sin in float16. Positions share the tables that layers make.
  void round_tables(ModelImpl& own, const Positions& at) const {
    own.states(ids_, at);
    for (auto& [key, tables] : *at.tables)
      for (Tensor* t : {&tables.cos, &tables.sin}) *t = t->to(at::kFloat).to(at::kHalf).to(options_.dtype);
  }

  // adamw.loss[i] is the loss before step i and, at the end, after the last.
  void compare_trajectory() {
    if (!recorded("adamw.loss")) return;
    const Spec spec = spec_["adamw"];
    Model own = fresh(mask_of("adamw"));
    Optimizer optimizer = recorded_optimizer(*own, spec);
    const int64_t steps = spec["steps"].integer();
    if (steps < 0 || steps > 1000) spec["steps"].refuse("0 to 1000");
    std::vector<double> losses;
    for (int64_t step = 0; step <= steps; ++step) {
      check_interrupt();
      const Tensor loss = next_token_loss(own->forward(ids_), ids_);
      losses.push_back(loss.item<double>());
      if (step == steps) break;
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
    compare(report_.outputs, "adamw.loss", at::tensor(losses, at::kDouble));
    std::map<std::string, Tensor> values;
    at::NoGradGuard no_grad;
    for (const auto& item : own->named_parameters()) values[item.key()] = item.value();
    for (const auto& [name, value] : given_all(checkpoint_.rows, values))
      compare(report_.outputs, "adamw.param_norm." + name, value.norm());
  }

  // A model of its own, for its values change.
  Model fresh(const std::string& mask) {
    if (checkpoint_.config.attention.at("window") != 0) checkpoint_.config.attention["window_mask"] = mask;
    return load_model(checkpoint_, {options_.dtype, options_.device});
  }

  void compare_continuations() {
    if (!spec_.has("greedy")) return;
    const Spec greedy = spec_["greedy"];
    const Tensor prompt = file_.input(greedy["prompt"], "T");
    const int64_t count = greedy["new_tokens"].integer();
    if (count < 1 || count > 4096) greedy["new_tokens"].refuse("1 to 4096");
    std::map<std::string, Continuation> made;
    for (const std::string& name : greedy.keys()) {
      if (!name.ends_with(".ids") && !name.ends_with(".ids_nocache")) continue;
      check_interrupt();
      const Spec how = greedy[name];
      const std::string path = how["path"].word();
      if (path != "cached" && path != "recomputed") how["path"].refuse("cached or recomputed");
      Model& own = model(how[path == "cached" ? "prefill_window_mask" : "window_mask"].word());
      made[name] = path == "cached" ? cached(*own, prompt, count) : recomputed(*own, prompt, count);
      add(report_.outputs, name, at::tensor(made[name].ids).equal(file_.reference(name).to(at::kLong)) ? 0 : HUGE_VAL);
    }
    if (!recorded("greedy.logits")) return;
    const Spec logits = greedy["greedy.logits"];
    const auto of = made.find(logits["of"].word());
    if (of == made.end()) logits["of"].refuse("one of the id lists");
    std::vector<Tensor> rows;
    for (const int64_t row : logits["rows"].integers()) {
      if (row < 0 || row >= count) logits["rows"].refuse(text("rows below ", count));
      rows.push_back(of->second.logits[static_cast<size_t>(row)]);
    }
    compare(report_.outputs, "greedy.logits", at::stack(rows));
  }

  inline static const std::string kNorm = "grad_norm.";

  Checkpoint checkpoint_;
  const GoldenFile& file_;
  Spec spec_;
  const VerifyOptions& options_;
  FileReport& report_;
  Tensor ids_;
  std::map<std::string, Model> models_;
  std::set<std::string> seen_;
};

}  // namespace

bool is_model_folder(const std::string& path) {
  return fs::is_directory(path) && fs::exists(fs::path(path) / "config.json");
}

FileReport verify_model_folder(const std::string& path, const VerifyOptions& options) {
  const std::string expected = (fs::path(path) / kExpected).string();
  if (!fs::exists(expected)) fail(path, ": has no ", kExpected, ", so there is nothing to compare the model with");
  FileReport report{.path = path};
  const SafetensorsFile stored(expected);
  try {
    const GoldenFile file(stored, options.dtype, options.device);
    ModelVerification(path, file, options, report).run();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    const std::string message = told(error);
    fail(message.starts_with(path) ? message : text(path, ": ", message));
  }
  return report;
}

}  // namespace motet
