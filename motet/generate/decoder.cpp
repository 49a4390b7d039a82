#include "motet/generate/decoder.h"

#include <algorithm>
#include <cmath>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

constexpr int64_t kMostLikeliest = 1000;  // that a device is asked for; more are no fewer than all
constexpr int64_t kPromptTokens = 512;    // of a prompt at once: what bounds the memory of its activations

void check_room(ModelImpl& model, int64_t tokens, int64_t sequences, const CacheOptions& options) {
  const int64_t needed = sequences * cache_bytes(model, tokens, options);
  const std::optional<int64_t> available = free_memory(model.device());
  if (!available || needed <= *available) return;
  fail("generate: the cache of ", sequences, sequences == 1 ? " sequence" : " sequences", " of ", tokens,
       " tokens takes ", needed, " bytes, want at most the ", *available, " that are free on ", model.device().str(),
       ": fewer tokens or samples, or a smaller cache type");
}

// The likeliest of each row, in order, by one copy from its device; nothing where they are not certain: a number that
// is none, or equal ones of which some are left out, whose order is the device's own.
std::vector<std::vector<Candidate>> likeliest_of(const Tensor& logits_BV, int64_t count) {
  const int64_t asked = std::min(count + 1, logits_BV.size(1));
  const auto [values, ids] = logits_BV.to(at::kFloat).topk(asked);
  const Tensor both = at::stack({values.to(at::kDouble), ids.to(at::kDouble)}).to(at::kCPU).contiguous();
  const auto numbers = host_numbers<double>(both);
  const size_t rows = static_cast<size_t>(logits_BV.size(0)), width = static_cast<size_t>(asked);
  std::vector<std::vector<Candidate>> all(rows);
  for (size_t r = 0; r < rows; ++r) {
    std::vector<Candidate>& own = all[r];
    for (size_t i = r * width; i < (r + 1) * width; ++i)
      own.push_back({numbers[i], static_cast<int32_t>(numbers[rows * width + i])});
    if (!std::isfinite(own.front().logit)) return {};
    if (asked <= count) continue;  // that is all of them
    if (own[width - 1].logit == own[width - 2].logit) return {};
    own.pop_back();
  }
  for (std::vector<Candidate>& own : all) std::sort(own.begin(), own.end(), better);
  return all;
}

}  // namespace

Decoder::Decoder(ModelImpl& model, std::vector<int32_t> prompt, int64_t planned, CacheOptions options)
    : model_(model),
      ids_{std::move(prompt)},
      prompt_(static_cast<int64_t>(ids().size())),
      options_(options),
      length_(std::min(static_cast<int64_t>(ids().size()) + planned, model.config().context)),
      cache_(fresh()) {
  check_room(model_, length_, 1, options);
}

Cache Decoder::fresh() const {
  if (!model_.config().causal())
    fail_usage("generate: the model is not causal, want one whose tokens see only those before them;",
               " motet eval masked scores an encoder");
  return Cache(model_.config(), length_, std::vector<int64_t>(ids_.size(), 0), options_);
}

void Decoder::push(std::span<const int32_t> tokens) {
  if (tokens.size() != ids_.size())
    fail("decoder: ", tokens.size(), " tokens, want one for each of ", ids_.size(), " sequences");
  for (size_t i = 0; i < ids_.size(); ++i) ids_[i].push_back(tokens[i]);
}

void Decoder::branch(int64_t times) {
  if (times == 1) return;
  check_room(model_, length_, times, options_);
  cache_.repeat(times);
  const std::vector<int32_t> one = ids();
  ids_.resize(static_cast<size_t>(times), one);
}

void Decoder::replace(std::vector<int32_t> ids) {
  const std::vector<int32_t>& now = ids_[0];
  const auto shared = std::mismatch(ids.begin(), ids.end(), now.begin(), now.end()).first - ids.begin();
  const int64_t known = std::min({static_cast<int64_t>(shared), cache_.size(), static_cast<int64_t>(ids.size()) - 1});
  const bool keeps = ids_.size() == 1 && begin_ == 0 && known >= 0 && cache_.truncate(known);
  ids_ = {std::move(ids)};
  prompt_ = static_cast<int64_t>(ids_[0].size());
  if (!keeps) begin_ = 0, cache_ = fresh();
}

std::vector<int64_t> Decoder::next_ids(int64_t first, int64_t count) const {
  std::vector<int64_t> next;
  for (int64_t i = 0; i < sequences(); ++i)
    next.insert(next.end(), ids(i).begin() + first, ids(i).begin() + first + count);
  return next;
}

void Decoder::fail_not_finite() const {
  for (int64_t i = 0; i < sequences(); ++i) {
    const std::span<const int32_t> seen(ids(i).begin() + begin_, ids(i).end());
    const std::string where = model_.first_non_finite(ids_tensor(seen, model_.device()));
    if (!where.empty()) fail("generate: the model's logits are not finite; the first such numbers are in ", where);
  }
  fail("generate: the model's logits are not finite");
}

// Logits of the token after the last, on the model's device.
Tensor Decoder::computed() {
  const int64_t context = model_.config().context, end = static_cast<int64_t>(ids().size());
  if (end - begin_ > context) {
    begin_ = end - std::max<int64_t>(context / 2, 1);
    prompt_ = end, cache_ = fresh();
  }
  Tensor hidden;
  while (begin_ + cache_.size() < end) {
    check_interrupt();
    const int64_t first = begin_ + cache_.size(), count = std::min(end - first, kPromptTokens);
    const std::vector<int64_t> next = next_ids(first, count);
    const bool prompt = first < prompt_;
    if (end - first == 1 && !prompt)
      if (const std::optional<Tensor> made = recorded_.logits(model_, cache_, next, length_)) return *made;
    hidden = cache_.step(model_, moved(next, {sequences(), count}, model_.device()), length_, prompt);
  }
  if (!hidden.defined()) fail("generate: there is no new token to compute, want a prompt or a token between");
  return model_.logits(hidden.select(1, -1));
}

Tensor Decoder::checked(const Tensor& computed) const {
  const Tensor logits = computed.to(at::kCPU, at::kFloat);
  if (!at::isfinite(logits.sum()).item<bool>() && !at::isfinite(logits).all().item<bool>()) fail_not_finite();
  return logits;
}

Tensor Decoder::logits() {
  at::NoGradGuard no_grad;
  return checked(computed());
}

Decoder::Next Decoder::next(int64_t count, int64_t vocabulary) {
  at::NoGradGuard no_grad;
  const Tensor logits = computed();
  if (!logits.is_cpu() && count > 0 && count <= kMostLikeliest)
    if (Next found{{}, likeliest_of(logits.narrow(1, 0, std::min(vocabulary, logits.size(1))), count)};
        !found.likeliest.empty())
      return found;
  return {checked(logits), {}};
}

}  // namespace motet
