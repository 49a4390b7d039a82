#include "motet/lab/recall.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_set>

#include "motet/core/error.h"
#include "motet/core/splitmix.h"
#include "motet/train/score.h"
#include "motet/train/text_data.h"

namespace motet {
namespace {

constexpr int64_t kRowsAtOnce = 16;

uint64_t hash_of(std::span<const int64_t> ngram) {
  uint64_t hash = 0;
  for (const int64_t id : ngram) hash = splitmix64(hash, static_cast<uint64_t>(id));
  return hash;
}

}  // namespace

FrequentNgrams::FrequentNgrams(const TokenSequence& tokens, int64_t n, double part) : n_(n) {
  const std::vector<int64_t> ids = tokens.slice(0, tokens.size());
  const auto size = static_cast<size_t>(n);
  std::vector<uint64_t> all;
  for (size_t at = 0; at + size <= ids.size(); ++at) all.push_back(hash_of(std::span(ids).subspan(at, size)));
  std::ranges::sort(all);
  std::vector<std::pair<size_t, uint64_t>> counted;
  for (size_t at = 0, next = 0; at < all.size(); at = next) {
    while (next < all.size() && all[next] == all[at]) ++next;
    counted.emplace_back(next - at, all[at]);
  }
  const auto behind = static_cast<size_t>(part * static_cast<double>(counted.size()));
  size_t most = 0;  // occurrences of those that are not frequent
  if (behind < counted.size()) {
    const auto place = counted.begin() + static_cast<std::ptrdiff_t>(behind);
    std::ranges::nth_element(counted, place, std::greater<>());
    most = place->first;
  }
  for (const auto& [count, hash] : counted)
    if (count > most) hashes_.push_back(hash);
  std::ranges::sort(hashes_);
}

bool FrequentNgrams::contains(std::span<const int64_t> ngram) const {
  return std::ranges::binary_search(hashes_, hash_of(ngram));
}

std::vector<bool> recalled(std::span<const int64_t> window, const FrequentNgrams& frequent) {
  const auto n = static_cast<size_t>(frequent.n());
  std::vector<bool> out(window.size());
  std::unordered_set<uint64_t> seen;
  for (size_t begin = 0; begin + n <= window.size(); ++begin) {
    const auto ngram = window.subspan(begin, n);
    if (!seen.insert(hash_of(ngram)).second) out[begin + n - 1] = !frequent.contains(ngram);
  }
  return out;
}

Recall read_recall(const nlohmann::json& given) {
  if (!given.is_object()) fail_usage("recall: want a table");
  Recall out;
  for (const auto& [key, value] : given.items()) {
    if (key == "n" && value.is_number_integer() && value >= 1 && value <= 64)
      out.n = value;
    else if (key == "tokens" && value.is_number_integer() && value > 1)
      out.tokens = value;
    else if (key == "frequent" && value.is_number() && value >= 0 && value <= 1)
      out.frequent = value;
    else if (key == "n" || key == "tokens" || key == "frequent")
      fail_usage("recall.", key, ": ", value.dump(), ", want n = 8 of 1 to 64, tokens = 131072, frequent = 0.1");
    else
      fail_usage(unknown_name("option", "recall." + key, {"recall.n", "recall.tokens", "recall.frequent"}));
  }
  return out;
}

void check_recall(const ModelConfig& config, const Recall& recall) {
  if (recall.tokens <= config.context)
    fail_usage("recall.tokens: ", recall.tokens, ", want more than the context of ", config.context);
  if (recall.n >= config.context)
    fail_usage("recall.n: ", recall.n, ", want less than the context of ", config.context);
}

std::map<std::string, double> recall_losses(ModelImpl& model, const TokenSequence& train,
                                            const TokenSequence& validation, const Recall& recall) {
  at::NoGradGuard no_grad;
  const FrequentNgrams frequent(train, recall.n, recall.frequent);
  const ScoredTokens scored{validation, {}, model.config().context};
  const int64_t rows = std::min(recall.tokens / scored.context, num_eval_windows(validation, scored.context));
  double sums[2] = {0, 0}, counts[2] = {0, 0};  // of the rest, of what is recalled
  for (int64_t row = 0; row < rows; row += kRowsAtOnce) {
    std::vector<int64_t> which;
    for (int64_t i = row; i < std::min(row + kRowsAtOnce, rows); ++i) which.push_back(i);
    const TokenTensors tokens = as_tensors(scored_batch(scored, which), model.device());
    const Tensor losses = ops::token_loss(model.forward(tokens.inputs, tokens.documents), tokens.targets, Loss::each)
                              .to(at::kCPU, at::kDouble)
                              .contiguous(),
                 windows = at::cat({tokens.inputs, tokens.targets.slice(1, -1)}, 1).to(at::kCPU).contiguous();
    const auto width = static_cast<size_t>(scored.context) + 1;
    for (size_t i = 0; i < which.size(); ++i) {
      const std::vector<bool> own = recalled({windows.const_data_ptr<int64_t>() + i * width, width}, frequent);
      const double* loss = losses.const_data_ptr<double>() + i * (width - 1);
      for (size_t at = 1; at < width; ++at) sums[own[at]] += loss[at - 1], ++counts[own[at]];
    }
  }
  return {{"loss{recall}", sums[1] / counts[1]},
          {"loss{rest}", sums[0] / counts[0]},
          {"recalled", counts[1] / (counts[0] + counts[1])}};
}

std::vector<std::string> recall_metrics() { return {"loss{recall}", "loss{rest}", "recalled"}; }

}  // namespace motet
