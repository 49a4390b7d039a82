#include "motet/generate/cache.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/ops/ops.h"
#include "motet/ops/views.h"

namespace motet {
namespace {

constexpr int64_t kFirstCapacity = 64;  // tokens; doubles as needed

at::ScalarType stored_type(CacheType type, at::ScalarType model) {
  switch (type) {
    case CacheType::bfloat16:
      return at::kBFloat16;
    case CacheType::float16:
      return at::kHalf;
    case CacheType::int8:
      return at::kChar;
    default:
      return model;
  }
}

}  // namespace

const char* name(CacheType type) { return word_of(cache_types(), type); }

CacheType parse_cache_type(const std::string& name) { return value_of(cache_types(), name, "cache type"); }

namespace {

Tensor with_capacity(const Tensor& like, int64_t capacity) {
  std::vector<int64_t> size = like.sizes().vec();
  size[1] = capacity;
  return at::empty(size, like.options());
}

}  // namespace

KeyRows::KeyRows(const Tensor& like, CacheType type, int64_t capacity) : model_type_(like.scalar_type()), type_(type) {
  values_ = with_capacity(like.detach(), capacity).to(stored_type(type, model_type_));
  if (type == CacheType::int8) scales_ = with_capacity(like.detach().select(-1, 0).to(at::kFloat), capacity);
}

void KeyRows::write(int64_t at, const Tensor& added, int64_t most) {
  const int64_t end = at + added.size(1);
  if (end > values_.size(1)) keep(0, at, std::max(end, std::min(2 * values_.size(1), most)));
  if (type_ != CacheType::int8) return ops::write_rows(values_, at, added);
  const Tensor scale = added.abs().amax(-1).to(at::kFloat).div_(127).clamp_min_(1e-30);
  ops::write_rows(scales_, at, scale);
  ops::write_rows(values_, at, added.to(at::kFloat).div(scale.unsqueeze(-1)).round_());
}

Tensor KeyRows::read(int64_t count, bool narrow) const {
  const Tensor held = ops::rows(values_, 0, count);
  if (type_ == CacheType::model || (narrow && model_type_ == at::kFloat)) return held;
  if (type_ != CacheType::int8) return held.to(model_type_);
  return held.to(at::kFloat).mul_(scales_.narrow(1, 0, count).unsqueeze(-1)).to(model_type_);
}

Tensor KeyRows::read_scales(int64_t count) const {
  return scales_.defined() && model_type_ == at::kFloat ? ops::rows(scales_, 0, count) : Tensor();
}

void KeyRows::keep(int64_t from, int64_t count, int64_t capacity) {
  for (Tensor* t : {&values_, &scales_}) {
    if (!t->defined()) continue;
    const Tensor kept = with_capacity(*t, capacity);
    kept.narrow(1, 0, count).copy_(t->narrow(1, from, count));
    *t = kept;
  }
}

KeyRows KeyRows::beginning(int64_t count, int64_t capacity) const {
  KeyRows copy = *this;
  copy.keep(0, count, capacity);
  return copy;
}

void KeyRows::repeat(int64_t times) {
  for (Tensor* t : {&values_, &scales_})
    if (t->defined()) *t = t->repeat_interleave(times, 0);
}

int64_t KeyRows::bytes() const {
  return static_cast<int64_t>(values_.nbytes() + (scales_.defined() ? scales_.nbytes() : 0));
}

HeldKeys LayerCache::append(const Keys& added, bool narrow) {
  HeldKeys held{added, {}};
  const int64_t count = added.k_BSGD.size(1),
                first = std::clamp(2 * (held_ + count), std::min(kFirstCapacity, capacity_), capacity_);
  size_t i = 0;
  for_each_tensor(held.keys, [&](Tensor& t) {
    if (!t.defined()) return;
    if (i == tensors_.size()) tensors_.emplace_back(t, type_, std::max(first, held_ + count));
    tensors_[i].write(held_, t, capacity_);
    const bool as_stored = narrow && i < 2;  // k and v come first, then the mixes
    t = tensors_[i].read(held_ + count, as_stored);
    if (as_stored) (i == 0 ? held.scales.k_BSG : held.scales.v_BSG) = tensors_[i].read_scales(held_ + count);
    ++i;
  });
  held_ += count;
  return held;
}

void LayerCache::keep_window(int64_t window) {
  window_ = window;
  if (held_ < 2 * window) return;
  for (KeyRows& t : tensors_) t.keep(held_ - window, window, 2 * window);
  begin_ += held_ - window, held_ = window;
}

bool LayerCache::can_end_at(int64_t end) const { return begin_ == 0 || end - window_ + 1 >= begin_; }

LayerCache LayerCache::beginning(int64_t end, int64_t capacity) const {
  LayerCache copy(type_, capacity);
  copy.begin_ = begin_, copy.held_ = end - begin_, copy.window_ = window_;
  const int64_t first = std::clamp(2 * copy.held_, std::min(kFirstCapacity, capacity), capacity);
  for (const KeyRows& t : tensors_) copy.tensors_.push_back(t.beginning(copy.held_, first));
  return copy;
}

void LayerCache::repeat(int64_t times) {
  for (KeyRows& t : tensors_) t.repeat(times);
}

int64_t LayerCache::bytes() const {
  int64_t sum = 0;
  for (const KeyRows& t : tensors_) sum += t.bytes();
  return sum;
}

Cache::Cache(const ModelConfig& config, int64_t capacity, std::vector<int64_t> padding, CacheOptions options)
    : padding_(std::move(padding)), options_(options), capacity_(capacity) {
  if (!config.causal()) fail("cache: the model is not causal, want one whose tokens see only those before them");
  const int64_t longest = capacity - *std::ranges::min_element(padding_);
  if (config.learned_positions() && longest > config.context)
    fail("cache: the model has learned positions for ", config.context, " tokens, want no ", longest);
  for (int64_t i = 0; i < config.num_layers(); ++i) layers_.emplace_back(options.type, capacity);
}

Positions Cache::positions(int64_t begin, int64_t end, int64_t length, at::Device device) const {
  Positions at = Positions::range(begin, end, length, device);
  if (std::all_of(padding_.begin(), padding_.end(), [](int64_t n) { return n == 0; })) return at;
  const Tensor padding_B1 = at::tensor(padding_, at.at.options()).unsqueeze(1);
  at.at = (at.at - padding_B1).clamp_min_(0);
  return at;
}

Cache::Entering Cache::enter(int64_t count, int64_t length, at::Device device) const {
  const int64_t end = size_ + count;
  if (end > capacity_) fail("cache: ", end, " tokens, want at most its capacity of ", capacity_);
  Entering tokens{positions(size_, end, options_.stepwise_base ? end : length, device), end, size_ == 0};
  if (std::any_of(padding_.begin(), padding_.end(), [](int64_t n) { return n > 0; }))
    tokens.padding_B = at::tensor(padding_, tokens.at.at.options());
  return tokens;
}

Keys Cache::keys(Mechanism& mechanism, const Tensor& normed, const Positions& at) const {
  return options_.compact ? mechanism.compact_keys(normed, at) : mechanism.keys(normed, at);
}

Tensor Cache::attend(Entering& tokens, int64_t number, Mechanism& mechanism, const Queries& queries,
                     const Keys& added) {
  LayerCache& layer = layers_[static_cast<size_t>(number)];
  HeldKeys all = layer.append(added, !options_.compact);
  auto found = tokens.held_from.find(layer.begin());
  if (found == tokens.held_from.end()) {
    const Positions held = positions(layer.begin(), tokens.end, tokens.at.length, tokens.at.at.device());
    found = tokens.held_from.emplace(layer.begin(), held).first;
  }
  const Positions& held = found->second;
  if (options_.compact) all.keys = mechanism.restore(all.keys, held);
  Attention attention = mechanism.attention(tokens.at, held, tokens.fresh ? Pass::whole : Pass::cached);
  attention.precision = mechanism.precision;
  if (tokens.padding_B.defined()) attention.visibility.key_begin_B = (tokens.padding_B - layer.begin()).clamp_min_(0);
  const Attended made = all.scales.k_BSG.defined() ? composed_attention(queries, all.keys, all.scales, attention)
                                                   : composed_attention(queries, all.keys, attention);
  if (const int64_t window = mechanism.window(Pass::cached); window > 0) layer.keep_window(window);
  return made.out_BTHE;
}

Tensor Cache::step(ModelImpl& model, const Tensor& ids, int64_t length) {
  const int64_t batch = static_cast<int64_t>(padding_.size());
  if (ids.size(0) != batch) fail("cache: ", ids.size(0), " sequences, want the ", batch, " of the cache");
  c10::InferenceMode inference;
  Entering tokens = enter(ids.size(1), length, ids.device());
  const auto attend_to = [&](int64_t i, BlockImpl& block, const Tensor& normed) {
    Mechanism& mechanism = *block.self_attn;
    const Queries queries = mechanism.queries(normed, tokens.at);
    return mechanism.finish(attend(tokens, i, mechanism, queries, keys(mechanism, normed, tokens.at)), normed);
  };
  const Tensor x = model.walk(model.embedded(ids, tokens.at), attend_to);
  entered(tokens);
  return model.normed(x);
}

bool Cache::can_end_at(int64_t tokens) const {
  return tokens <= size_ && std::ranges::all_of(layers_, [&](const LayerCache& l) { return l.can_end_at(tokens); });
}

Cache Cache::beginning(int64_t tokens, int64_t capacity) const {
  if (!can_end_at(tokens)) fail("cache: ", size_, " tokens, whose first ", tokens, " are not all held");
  Cache copy = *this;
  copy.size_ = tokens, copy.capacity_ = capacity;
  for (LayerCache& layer : copy.layers_) layer = layer.beginning(tokens, capacity);
  return copy;
}

bool Cache::truncate(int64_t tokens) {
  if (!can_end_at(tokens)) return false;
  for (LayerCache& layer : layers_) layer.end_at(tokens);
  size_ = tokens;
  return true;
}

void Cache::repeat(int64_t times) {
  if (padding_.size() != 1) fail("cache: ", padding_.size(), " sequences, want one to repeat");
  padding_.assign(static_cast<size_t>(times), padding_[0]);
  for (LayerCache& layer : layers_) layer.repeat(times);
}

int64_t Cache::bytes() const {
  int64_t sum = 0;
  for (const LayerCache& layer : layers_) sum += layer.bytes();
  return sum;
}

std::vector<LayerCost> cache_costs(ModelImpl& model, const CacheOptions& options) {
  at::NoGradGuard no_grad;
  const Tensor x =
      at::zeros({1, 1, model.config().hidden_size()}, at::TensorOptions(model.dtype()).device(model.device()));
  const Positions at = Positions::range(0, 1, 1, x.device());
  std::vector<LayerCost> costs;
  for (const Block& block : model.blocks()) {
    Keys keys = options.compact ? block->self_attn->compact_keys(x, at) : block->self_attn->keys(x, at);
    costs.push_back({0, block->self_attn->window(Pass::cached)});
    for_each_tensor(keys, [&](const Tensor& t) {
      if (t.defined()) costs.back().token_bytes += KeyRows(t, options.type, 1).bytes();
    });
  }
  return costs;
}

int64_t cache_bytes(const std::vector<LayerCost>& layers, int64_t tokens) {
  int64_t sum = 0;
  for (const auto& [token_bytes, window] : layers)
    sum += token_bytes * (window > 0 ? std::min(tokens, 2 * window) : tokens);
  return sum;
}

int64_t cache_bytes(ModelImpl& model, int64_t tokens, const CacheOptions& options) {
  return cache_bytes(cache_costs(model, options), tokens);
}

}  // namespace motet
