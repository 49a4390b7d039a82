// A cell that asks which maps of attention keys of a width can make at all: free queries and keys are fitted to a given
// map, without any data or model (Su Jianlin's theorem: keys of width n - 1 reach every map of n tokens).
#include <torch/optim/lbfgs.h>

#include <cmath>

#include "motet/core/error.h"
#include "motet/core/fields.h"
#include "motet/core/interrupt.h"
#include "motet/lab/lab.h"
#include "motet/layers/streams.h"

namespace motet {
namespace {

using nlohmann::json;

// A map P [n,n], rows of which sum to 1.
enum class Target {
  dirichlet,  // rows drawn with one concentration
  shifted,    // most on the token before, the rest evenly
  half_sets   // even over a random half of the tokens
};

struct FitOptions {
  int64_t n = 16, key_dim = 15;
  int64_t heads = 1;  // whose scores are added up: a talking head's scores are a mix of those of all heads
  Target target = Target::dirichlet;
  double concentration = 0.1, peak = 0.9;
  int64_t restarts = 3, iterations = 300;
};

const Fields<FitOptions>& fit_options() {
  using F = FitOptions;
  static const Fields<F> table{
      {"n", &F::n, {2, 4096}, "tokens"},
      {"key_dim", &F::key_dim, {1, 4096}, "numbers in a key of one head"},
      {"heads", &F::heads, {1, 256}, "heads whose scores are added up"},
      {"target",
       &F::target,
       {{"dirichlet", Target::dirichlet}, {"shifted", Target::shifted}, {"half_sets", Target::half_sets}},
       "map"},
      {"concentration", &F::concentration, {1e-3, 1e3}, "of dirichlet"},
      {"peak", &F::peak, {0.01, 1}, "of shifted: what the token before gets, the others share the rest"},
      {"restarts", &F::restarts, {1, 100}, "fits, the best of which counts"},
      {"iterations", &F::iterations, {1, 1e6}, "of L-BFGS at most"}};
  return table;
}

FitOptions read(const ExperimentCell& cell) { return fit_options().parse(cell.options, "options"); }

// Numbers in (0, 1), the same on every machine.
Tensor uniform(const Streams& random, const std::string& name, at::IntArrayRef shape) {
  Tensor out = at::empty(shape, at::kDouble);
  random.uniform(name, out, 0.5);
  return (out + 0.5).clamp_min(1e-12);
}

// Rows of a Dirichlet of one concentration, from gamma numbers: sums of exponential ones for its whole part, Johnk's
// method for the rest.
Tensor dirichlet(const Streams& random, int64_t n, double concentration) {
  const double a = concentration;
  Tensor gamma = at::zeros({n, n}, at::kDouble);
  const auto whole = static_cast<int64_t>(a);
  for (int64_t i = 0; i < whole; ++i) gamma = gamma - uniform(random, text("whole", i), {n, n}).log();
  if (const double rest = a - static_cast<double>(whole); rest > 0) {
    // Johnk: of pairs with u^(1/rest) + v^(1/(1 - rest)) <= 1 the share of the first, times an exponential number.
    Tensor made = at::zeros({n, n}, at::kDouble), open = at::ones({n, n}, at::kBool);
    for (int64_t round = 0; open.any().item<bool>(); ++round) {
      const Tensor x = uniform(random, text("x", round), {n, n}).pow(1 / rest),
                   y = uniform(random, text("y", round), {n, n}).pow(1 / (1 - rest));
      const Tensor taken = open.logical_and(x + y <= 1).logical_and(x + y > 0);
      made = at::where(taken, x / (x + y), made);
      open = open.logical_and(taken.logical_not());
    }
    gamma = gamma - made * uniform(random, "exponential", {n, n}).log();
  }
  gamma = gamma.clamp_min(1e-300);
  return gamma / gamma.sum(-1, true);
}

Tensor target_of(const FitOptions& o, const Streams& random) {
  switch (o.target) {
    case Target::dirichlet:
      return dirichlet(random, o.n, o.concentration);
    case Target::shifted:
      return at::eye(o.n, at::kDouble).roll(-1, -1) * (o.peak - (1 - o.peak) / static_cast<double>(o.n - 1)) +
             (1 - o.peak) / static_cast<double>(o.n - 1);
    case Target::half_sets: {
      const Tensor order = uniform(random, "sets", {o.n, o.n}).argsort(-1, false);
      return (order < o.n / 2).to(at::kDouble) / static_cast<double>(o.n / 2);
    }
  }
  return {};
}

// Mean over the rows of KL(P || softmax of the fitted scores), in nats.
double fit(const FitOptions& o, const Tensor& target_nn, const Streams& random) {
  const auto drawn = [&](const char* name) {
    Tensor out = at::empty({o.heads, o.n, o.key_dim}, at::kDouble);
    random.normal(name, out, 1);
    return out.requires_grad_();
  };
  const Tensor q = drawn("q"), k = drawn("k");
  const Tensor entropy = -at::xlogy(target_nn, target_nn).sum(-1).mean();
  const auto loss = [&] {
    const Tensor scores_nn = at::matmul(q, k.transpose(1, 2)).sum(0) / std::sqrt(static_cast<double>(o.key_dim));
    return -(target_nn * scores_nn.log_softmax(-1)).sum(-1).mean() - entropy;
  };
  torch::optim::LBFGS optimizer({q, k}, torch::optim::LBFGSOptions(1)
                                            .max_iter(o.iterations)
                                            .history_size(20)
                                            .tolerance_grad(1e-10)
                                            .tolerance_change(1e-13)
                                            .line_search_fn("strong_wolfe"));
  optimizer.step([&] {
    check_interrupt();
    optimizer.zero_grad();
    Tensor now = loss();
    now.backward();
    return now;
  });
  return loss().item<double>();
}

json configuration(Lab&, const ExperimentCell& cell) { return fit_options().write(read(cell)); }

std::vector<std::string> metrics(Lab&, const ExperimentCell&) { return {"kl"}; }

void run(Lab&, const ExperimentCell& cell, CellResult& out, const CellProgress& progress) {
  const FitOptions o = read(cell);
  const Streams random(static_cast<uint64_t>(cell.seed));
  const Tensor target = target_of(o, random.of("target"));
  double best = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < o.restarts; ++i) {
    best = std::min(best, fit(o, target, random.of(text("start", i))));
    progress(static_cast<double>(i + 1) / static_cast<double>(o.restarts));
  }
  out.metrics["kl"] = std::max(best, 0.0);  // below 0 by rounding alone
  out.parameters = 2 * o.heads * o.n * o.key_dim;
}

std::optional<double> seconds(Lab&, const ExperimentCell&) { return std::nullopt; }

}  // namespace

const CellKind kFitCell{
    .name = "fit", .alone = false, .configuration = configuration, .metrics = metrics, .run = run, .seconds = seconds};

}  // namespace motet
