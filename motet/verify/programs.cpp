#include "motet/verify/programs.h"

#include <algorithm>

#include "motet/core/error.h"

namespace motet {
namespace {

struct Program {
  const char* name;
  Evaluation (*run)(const GoldenFile&, const Spec&, const Quantities&);
};
constexpr const char* kOnDemand[] = {"scores", "logits", "probs", "mixed", "key_matrices", "visible"};
constexpr Program kPrograms[] = {
    {"operator", run_operator}, {"layer", run_layer}, {"head_mix", run_head_mix}, {"rope", run_rope}};

}  // namespace

const Quantity& Evaluation::quantity(const std::string& name) const {
  const auto found = quantities.find(name);
  if (found != quantities.end()) return found->second;
  std::set<std::string> known(std::begin(kOnDemand), std::end(kOnDemand));
  for (const auto& [own, ignored] : quantities) known.insert(own);
  fail(unknown_name("quantity", name, {known.begin(), known.end()}));
}

void Evaluation::backward(const Tensor& loss) const {
  loss.backward();
  std::vector<Tensor> functions, gradients;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].grad().defined() || !expressions[i].requires_grad()) continue;
    functions.push_back(expressions[i]);
    gradients.push_back(parameters[i].grad());
  }
  if (!functions.empty()) torch::autograd::backward(functions, gradients);
}

std::vector<std::string> program_names() {
  std::vector<std::string> names;
  for (const Program& program : kPrograms) names.push_back(program.name);
  return names;
}

void check_program(const Spec& spec) {
  const std::string name = spec["program"].word();
  if (name == "model") fail("spec.program is 'model': want the model folder instead of this file");
  const std::vector<std::string> known = program_names();
  if (std::find(known.begin(), known.end(), name) == known.end()) fail(unknown_name("spec.program", name, known));
}

Evaluation evaluate(const GoldenFile& file, const Spec& spec, const Quantities& wanted) {
  check_program(spec);
  const std::string name = spec["program"].word();
  return std::find_if(std::begin(kPrograms), std::end(kPrograms), [&](const Program& p) { return name == p.name; })
      ->run(file, spec, wanted);
}

}  // namespace motet
