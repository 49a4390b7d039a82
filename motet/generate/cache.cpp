#include "motet/generate/cache.h"

#include <algorithm>

#include "motet/core/error.h"

namespace motet {
namespace {

bool padded(const std::vector<int64_t>& padding) {
  return std::ranges::any_of(padding, [](int64_t n) { return n > 0; });
}

}  // namespace

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
  if (!padded(padding_)) return at;
  const Tensor padding_B1 = at::tensor(padding_, at.at.options()).unsqueeze(1);
  at.at = (at.at - padding_B1).clamp_min_(0);
  return at;
}

Cache::Entering Cache::enter(int64_t count, int64_t length, at::Device device, bool prompt) const {
  const int64_t end = size_ + count;
  if (end > capacity_) fail("cache: ", end, " tokens, want at most its capacity of ", capacity_);
  Entering tokens{positions(size_, end, options_.stepwise_base ? end : length, device), end, prompt || size_ == 0};
  if (padded(padding_)) tokens.padding_B = at::tensor(padding_, tokens.at.at.options());
  return tokens;
}

Keys Cache::keys(Mechanism& mechanism, const Tensor& normed, const Positions& at) const {
  return options_.compact ? mechanism.compact_keys(normed, at) : mechanism.keys(normed, at);
}

const Positions& Cache::held_positions(Entering& tokens, const LayerCache& layer, const Tensor& place_1,
                                       int64_t count) const {
  // Of a step that is done again, where a layer begins will be another number, but one for each window.
  const int64_t own = place_1.defined() ? layer.window() : layer.begin();
  const auto [found, fresh] = tokens.held.try_emplace({own, count});
  if (!fresh) return found->second;
  const Tensor& at = tokens.at.at;
  if (place_1.defined())  // the device knows what the layer's first key is
    found->second = {at::arange(count, at.options()) + (at - place_1), tokens.at.length};
  else
    found->second = positions(layer.begin(), tokens.end, tokens.at.length, at.device());
  return found->second;
}

Tensor Cache::attend(Entering& tokens, int64_t number, Mechanism& mechanism, const Queries& queries,
                     const Keys& added) {
  LayerCache& layer = layers_[static_cast<size_t>(number)];
  const Tensor place_1 = tokens.places.defined() ? tokens.places.narrow(0, 1 + number, 1) : Tensor();
  HeldKeys all =
      place_1.defined() ? layer.append_at(place_1, added, !options_.compact) : layer.append(added, !options_.compact);
  const Positions& held = held_positions(tokens, layer, place_1, all.keys.k_BSGD.size(1));
  if (options_.compact) all.keys = mechanism.restore(all.keys, held);
  Attention attention = mechanism.attention(tokens.at, held, tokens.prompt ? Pass::whole : Pass::cached);
  attention.precision = mechanism.precision;
  if (tokens.padding_B.defined()) attention.visibility.key_begin_B = (tokens.padding_B - layer.begin()).clamp_min_(0);
  if (place_1.defined()) attention.visibility.query_start_B = place_1.expand({queries.q_BTHD.size(0)});
  const Attended made = all.scales.k_BSG.defined() ? composed_attention(queries, all.keys, all.scales, attention)
                                                   : composed_attention(queries, all.keys, attention);
  if (const int64_t window = mechanism.window(Pass::whole); window > 0 && !place_1.defined()) layer.keep_window(window);
  return made.out_BTHE;
}

Tensor Cache::through(ModelImpl& model, const Tensor& ids, Entering& tokens) {
  const int64_t batch = static_cast<int64_t>(padding_.size());
  if (ids.size(0) != batch) fail("cache: ", ids.size(0), " sequences, want the ", batch, " of the cache");
  const auto attend_to = [&](int64_t i, BlockImpl& block, const Tensor& normed) {
    Mechanism& mechanism = *block.self_attn;
    const Queries queries = mechanism.queries(normed, tokens.at);
    return mechanism.finish(attend(tokens, i, mechanism, queries, keys(mechanism, normed, tokens.at)), normed);
  };
  return model.normed(model.walk(model.embedded(ids, tokens.at), attend_to));
}

Tensor Cache::step(ModelImpl& model, const Tensor& ids, int64_t length, bool prompt) {
  c10::InferenceMode inference;
  Entering tokens = enter(ids.size(1), length, ids.device(), prompt);
  const Tensor hidden = through(model, ids, tokens);
  entered(tokens);
  return hidden;
}

Tensor Cache::step_at(ModelImpl& model, const Tensor& ids, const Tensor& places, int64_t length) {
  c10::InferenceMode inference;
  Entering tokens{{places.narrow(0, 0, 1), length}, size_ + 1};
  tokens.places = places;
  return through(model, ids, tokens);
}

std::vector<int64_t> Cache::places() const {
  std::vector<int64_t> places{size_};
  for (const LayerCache& layer : layers_) places.push_back(layer.held());
  return places;
}

void Cache::stepped() {
  c10::InferenceMode inference;
  ++size_;
  for (LayerCache& layer : layers_) layer.appended();
}

std::string Cache::why_not_at() const {
  if (!options_.recorded) return "records are off";
  if (options_.stepwise_base) return "the base of positions goes by the step";
  if (padded(padding_)) return "there is padding";
  if (size_ == 0) return "nothing is held yet";
  if (size_ >= capacity_ || std::ranges::any_of(layers_, [](const LayerCache& l) { return l.room() < 1; }))
    return "there is no room for another token";
  return "";
}

std::vector<MemoryOf> Cache::memory() const {
  std::vector<MemoryOf> all;
  for (const LayerCache& layer : layers_) layer.add_memory(all);
  return all;
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
    const Keys keys = options.compact ? block->self_attn->compact_keys(x, at) : block->self_attn->keys(x, at);
    LayerCache layer(options.type, 1);
    layer.append(keys, !options.compact);
    costs.push_back({layer.bytes(), block->self_attn->window(Pass::whole)});
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
