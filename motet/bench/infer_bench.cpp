#include "motet/bench/infer_bench.h"

#include <cmath>
#include <deque>
#include <numeric>
#include <optional>

#include "motet/bench/rival.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/progress.h"
#include "motet/generate/recorded_steps.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

constexpr int64_t kPiece = 512;      // of a prompt at once, as the decoder has it and the rivals are told
constexpr int64_t kCheckTokens = 9;  // of the prompt that all compute first

constexpr double kMostError = 1e-3, kMostErrorIn16Bits = 0.03, kMostErrorIn8Bits = 0.15;

// Of a rival with weights of the same type, which rounds activations to it too.
double most_error(WeightType type) {
  return type == WeightType::float32 ? kMostError : type == WeightType::int8 ? kMostErrorIn8Bits : kMostErrorIn16Bits;
}
double most_error(CacheType type) { return type == CacheType::int8 ? kMostErrorIn8Bits : kMostErrorIn16Bits; }

// One of our models with its cache.
class Runner {
 public:
  Runner(InferModel& given, int64_t capacity)
      : model_(*given.model), options_{.type = given.cache}, capacity_(capacity) {
    model_.set_autocast({});  // decoding computes in float32
    model_.prepare(given.weights);
    for (const Tensor& p : model_.parameters()) bytes_ += static_cast<int64_t>(p.nbytes());
    for (const auto& item : model_.named_modules())
      if (auto* linear = item.value()->as<LinearImpl>()) bytes_ += linear->kept_bytes();
  }

  // Logits on the host, where a sampler takes them.
  Tensor decode(const std::vector<int64_t>& ids) {
    at::NoGradGuard no_grad;
    if (ids.size() == 1)
      if (const std::optional<Tensor> made = recorded_.logits(model_, *cache_, ids, capacity_))
        return made->squeeze(0).to(at::kCPU);
    const Tensor hidden = cache_->step(model_, ids_tensor(std::span(ids), model_.device()), capacity_);
    return model_.logits(hidden.select(1, -1)).squeeze(0).to(at::kCPU);
  }

  // Forgets all but the first `depth` tokens.
  void prepare(int64_t depth) {
    if (!cache_ || cache_->size() < depth || !cache_->truncate(depth))
      cache_.emplace(model_.config(), capacity_, std::vector<int64_t>{0}, options_);
    read(cache_->size(), depth, [&](int64_t i) { return i % model_.config().vocab_size; });
  }

  // As bench/rival_infer.py has it.
  Time run(const InferCase& what) {
    prepare(what.depth);
    const auto decode_all = [&] {
      const auto id = [&](int64_t i) { return (7 + i % 1000) % model_.config().vocab_size; };
      if (what.prompt) return read(0, what.tokens, id);
      for (int64_t i = 0; i < what.tokens; ++i) decode({id(i)});
    };
    return timed(decode_all, model_.device());
  }

  int64_t bytes() const { return bytes_; }
  int64_t cache_bytes() const { return cache_ ? cache_->bytes() : 0; }

 private:
  // Tokens `begin` to `end` - 1 of a prompt.
  void read(int64_t begin, int64_t end, const std::function<int64_t(int64_t)>& id) {
    for (; begin < end; begin += kPiece) {
      std::vector<int64_t> ids;
      for (int64_t i = begin; i < std::min(begin + kPiece, end); ++i) ids.push_back(id(i));
      decode(ids);
    }
  }

  ModelImpl& model_;
  const CacheOptions options_;
  int64_t capacity_, bytes_ = 0;
  std::optional<Cache> cache_;
  RecordedSteps recorded_;
};

nlohmann::json rival_request(const InferBench& bench, const InferRival& rival, const std::vector<int64_t>& check) {
  int64_t prompt = 1, generate = 1, depth = 0;
  for (const InferCase& c : bench.cases) (c.prompt ? prompt : generate) = c.tokens, depth = std::max(depth, c.depth);
  return {{"folder", std::filesystem::absolute(bench.folder).string()},
          {"prompt", prompt},
          {"generate", generate},
          {"depth", depth},
          {"vocab", bench.models[rival.against].model->config().vocab_size},
          {"threads", bench.threads},
          {"weights", name(rival.weights)},
          {"check", check},
          {"seed", 1}};
}

// Of the largest logit. Throws Error above `most`.
double checked_error(const Tensor& theirs, const Tensor& ours, double most, const std::string& name) {
  const Tensor mine = ours.to(at::kDouble);
  const double error = ((theirs.to(at::kDouble) - mine).abs().max() / mine.abs().max()).item<double>();
  if (!(error <= most)) fail(name, ": its logits differ from ours by ", error, " of the largest, want at most ", most);
  return error;
}

Tensor logits_of(const RivalProcess& rival, const Tensor& ours, const std::string& name) {
  const auto found = rival.facts().find("logits");
  if (found == rival.facts().end() || !found->is_array() || static_cast<int64_t>(found->size()) != ours.numel())
    fail(name, ": it has other logits than the ", ours.numel(), " of our vocabulary");
  return at::tensor(found->get<std::vector<double>>(), at::kDouble);
}

}  // namespace

const Fields<InferShape>& infer_shape_options() {
  using I = InferShape;
  static const Fields<I> table{
      {"hidden", &I::hidden, {1, 65536}, "width of the residual stream"},
      {"layers", &I::layers, {1, 1024}, "number of layers"},
      {"heads", &I::heads, {1, 1024}, "attention heads"},
      {"kv_heads", &I::kv_heads, {0, 1024}, "key and value heads; 0 = heads"},
      {"intermediate", &I::intermediate, {0, 1e6}, "width of the feed-forward; 0 = 8/3 hidden"},
      {"vocab", &I::vocab, {1100, 1e6}, "tokens of the vocabulary"},
      {"prompt", &I::prompt, {1, 1e6}, "tokens of the prompt"},
      {"generate", &I::generate, {1, 1e6}, "single tokens"},
      {"depth", &I::depth, {0, 1e6}, "tokens already in the cache, of the cases at depth; 0: no such cases"},
  };
  return table;
}

std::string InferCase::name() const { return text(prompt ? "pp" : "tg", tokens, depth > 0 ? text(" @ ", depth) : ""); }

double InferRates::mean() const {
  return std::accumulate(turns.begin(), turns.end(), 0.0) / static_cast<double>(turns.size());
}

double InferRates::deviation() const {
  const double middle = mean();
  double squares = 0;
  for (const double x : turns) squares += (x - middle) * (x - middle);
  return turns.size() > 1 ? std::sqrt(squares / static_cast<double>(turns.size() - 1)) : 0;
}

double InferRates::over(const InferRates& other) const {
  std::vector<double> ratios;
  for (size_t i = 0; i < turns.size(); ++i) ratios.push_back(turns[i] / other.turns[i]);
  return median(ratios);
}

std::vector<InferResult> measure_inference(const InferBench& bench) {
  int64_t capacity = 0;
  for (const InferCase& c : bench.cases) capacity = std::max(capacity, c.depth + c.tokens);
  std::vector<InferModel> models = bench.models;
  const ModelConfig& first = models.at(0).model->config();
  if (capacity > first.context)
    fail("bench infer: the cases take ", capacity, " tokens, want at most the model's context of ", first.context,
         ": smaller prompt, generate or depth in --shape");
  std::vector<int64_t> check;
  for (int64_t i = 0; i < kCheckTokens; ++i) check.push_back((1 + 17 * i) % first.vocab_size);

  std::deque<Runner> runners;
  std::vector<InferResult> results;
  std::vector<Tensor> logits;
  for (InferModel& model : models) {
    Runner& runner = runners.emplace_back(model, std::max(capacity, kCheckTokens));
    runner.prepare(0);
    runner.decode({check.begin(), check.end() - 1});
    logits.push_back(runner.decode({check.back()}));  // which reads what is kept
    results.push_back({.name = model.name, .model_bytes = runner.bytes()});
    if (model.near)
      results.back().logits_error =
          checked_error(logits.back(), logits[*model.near], most_error(model.cache), model.name);
  }
  std::deque<RivalProcess> rivals;
  for (const InferRival& rival : bench.rivals) {
    rivals.emplace_back(find_rival(rival.script, bench.python), rival_request(bench, rival, check));
    InferResult result{.name = rival.name, .version = rivals.back().facts().value("version", "unknown")};
    result.logits_error = checked_error(logits_of(rivals.back(), logits[0], rival.name), logits[0],
                                        most_error(rival.weights), rival.name);
    results.push_back(result);
  }

  const int64_t turns = bench.turns.warmups + bench.turns.repeats;
  Progress progress("bench infer", turns * static_cast<int64_t>(bench.cases.size()));
  int64_t done = 0;
  for (const InferCase& c : bench.cases) {  // a case after the other: the caches at depth are filled once
    for (InferResult& result : results) result.rates.emplace_back();
    for (int64_t turn = 0; turn < turns; ++turn) {
      progress.update(done++, c.name());
      for (size_t place = 0; place < results.size(); ++place) {
        const size_t i = turn % 2 ? results.size() - 1 - place : place;
        check_interrupt();
        const Time time = i < runners.size() ? runners[i].run(c)
                                             : rivals[i - runners.size()].step(text(c.prompt ? "pp " : "tg ", c.depth));
        if (turn >= bench.turns.warmups)
          results[i].rates.back().turns.push_back(static_cast<double>(c.tokens) / time.wall);
      }
    }
  }
  progress.finish();
  for (size_t i = 0; i < runners.size(); ++i) results[i].cache_bytes = runners[i].cache_bytes();
  return results;
}

}  // namespace motet
