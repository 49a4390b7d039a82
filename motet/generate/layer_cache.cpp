#include "motet/generate/layer_cache.h"

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
  // A device reads what is not held beside what is (append_at), and hides it: NaN times 0 would not be hidden.
  return like.is_cpu() ? at::empty(size, like.options()) : at::zeros(size, like.options());
}

// Rows as whole numbers from -127 to 127, still in float32, and what each row's stand for.
std::pair<Tensor, Tensor> in_8_bits(const Tensor& rows) {
  const Tensor scales = rows.abs().amax(-1).to(at::kFloat).div_(127).clamp_min_(1e-30);
  return {rows.to(at::kFloat).div(scales.unsqueeze(-1)).round_(), scales};
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
  const auto [values, scales] = in_8_bits(added);
  ops::write_rows(values_, at, values);
  ops::write_rows(scales_, at, scales);
}

void KeyRows::write_at(const Tensor& place_1, const Tensor& added) {
  if (type_ != CacheType::int8) {
    values_.index_copy_(1, place_1, added.to(values_.scalar_type()));
    return;
  }
  const auto [values, scales] = in_8_bits(added);
  values_.index_copy_(1, place_1, values.to(at::kChar));
  scales_.index_copy_(1, place_1, scales);
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

void KeyRows::move_to_front(int64_t from, int64_t count) {
  for (const Tensor* t : {&values_, &scales_})
    if (t->defined()) t->narrow(1, 0, count).copy_(t->narrow(1, from, count));
}

void KeyRows::add_memory(std::vector<MemoryOf>& all) const {
  for (const Tensor* t : {&values_, &scales_})
    if (t->defined()) all.emplace_back(*t);
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

template <class Write>
HeldKeys LayerCache::with(const Keys& added, int64_t count, bool narrow, const Write& write) {
  HeldKeys held{added, {}};
  size_t i = 0;
  for_each_tensor(held.keys, [&](Tensor& t) {
    if (!t.defined()) return;
    write(i, t);
    const bool as_stored = narrow && i < 2;  // k and v come first, then the mixes
    t = tensors_[i].read(count, as_stored);
    if (as_stored) (i == 0 ? held.scales.k_BSG : held.scales.v_BSG) = tensors_[i].read_scales(count);
    ++i;
  });
  return held;
}

HeldKeys LayerCache::append(const Keys& added, bool narrow) {
  const int64_t end = held_ + added.k_BSGD.size(1),
                first = std::clamp(2 * end, std::min(kFirstCapacity, capacity_), capacity_);
  HeldKeys all = with(added, end, narrow, [&](size_t i, const Tensor& t) {
    if (i == tensors_.size()) tensors_.emplace_back(t, type_, std::max(first, end));
    tensors_[i].write(held_, t, capacity_);
  });
  held_ = end;
  return all;
}

HeldKeys LayerCache::append_at(const Tensor& place_1, const Keys& added, bool narrow) {
  return with(added, tensors_.front().capacity(), narrow,
              [&](size_t i, const Tensor& t) { tensors_[i].write_at(place_1, t); });
}

void LayerCache::appended() {
  ++held_;
  if (window_ > 0) keep_window(window_);
}

void LayerCache::add_memory(std::vector<MemoryOf>& all) const {
  for (const KeyRows& t : tensors_) t.add_memory(all);
}

void LayerCache::keep_window(int64_t window) {
  window_ = window;
  if (held_ < 2 * window) return;
  for (KeyRows& t : tensors_) {
    if (held_ == 2 * window && t.capacity() == 2 * window)
      t.move_to_front(window, window);
    else
      t.keep(held_ - window, window, 2 * window);
  }
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

}  // namespace motet
