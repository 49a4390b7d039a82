#include "motet/generate/layer_cache.h"

#include <algorithm>
#include <array>

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

// Rows as they lie in memory, and back: those of heads, [B,S,G,D], by head.
Tensor turned(const Tensor& rows) { return rows.dim() == 4 ? rows.transpose(1, 2) : rows; }

Tensor rows_of(const Tensor& like, int64_t capacity, at::IntArrayRef shape, at::ScalarType type) {
  std::vector<int64_t> size{like.size(0), capacity};
  size.insert(size.end(), shape.begin(), shape.end());
  if (shape.size() == 2) std::swap(size[1], size[2]);
  const at::TensorOptions options = like.options().dtype(type).requires_grad(false);
  // A device reads what is not held beside what is (append_at), and hides it: NaN times 0 would not be hidden.
  return turned(like.is_cpu() ? at::empty(size, options) : at::zeros(size, options));
}

// Rows as whole numbers from -127 to 127, still in float32, and what each row's stand for.
struct EightBits {
  std::vector<Tensor> values, scales;
  explicit EightBits(at::TensorList rows) {
    for (const Tensor& x : rows) {
      scales.push_back(x.abs().amax(-1, true).to(at::kFloat).div_(127).clamp_min_(1e-30));
      values.push_back(x.to(at::kFloat).div(scales.back()).round_());
    }
  }
};

int64_t numbers(at::IntArrayRef shape) { return c10::multiply_integers(shape); }
int64_t scales(at::IntArrayRef shape) { return c10::multiply_integers(shape.slice(0, shape.size() - 1)); }

}  // namespace

KeyRows::KeyRows(at::TensorList like, CacheType type, int64_t capacity, RowOrder order)
    : model_type_(like[0].scalar_type()), type_(type) {
  int64_t width = 0, scale_width = 0;
  for (const Tensor& t : like) {
    shapes_.push_back(t.sizes().slice(2).vec());
    model_type_ = at::promote_types(model_type_, t.scalar_type());
    width += numbers(shapes_.back()), scale_width += scales(shapes_.back());
  }
  const bool by_head = order == RowOrder::by_head && like.size() == 1 && like[0].dim() == 4;
  values_BS = rows_of(like[0], capacity, by_head ? shapes_[0] : std::vector{width}, stored_type(type, model_type_));
  if (type == CacheType::int8) scales_BSY = rows_of(like[0], capacity, scale_width, at::kFloat);
}

void KeyRows::write(int64_t at, at::TensorList added, int64_t most) {
  const int64_t end = at + added[0].size(1);
  if (end > capacity()) keep(0, at, std::max(end, std::min(2 * capacity(), most)));
  if (type_ != CacheType::int8) return ops::write_rows(values_BS, at, added);
  const EightBits rows(added);
  ops::write_rows(values_BS, at, rows.values);
  ops::write_rows(scales_BSY, at, rows.scales);
}

void KeyRows::write_at(const Tensor& place_1, at::TensorList added) {
  const auto put = [&](const Tensor& to, at::TensorList rows) {
    to.index_copy_(1, place_1, (to.dim() == 4 ? rows[0] : ops::side_by_side(rows)).to(to.scalar_type()));
  };
  if (type_ != CacheType::int8) return put(values_BS, added);
  const EightBits rows(added);
  put(values_BS, rows.values);
  put(scales_BSY, rows.scales);
}

std::vector<Tensor> KeyRows::read(int64_t count, bool narrow) const {
  const bool as_stored = type_ == CacheType::model || (narrow && model_type_ == at::kFloat);
  const Tensor all = as_stored                  ? values_BS
                     : type_ == CacheType::int8 ? ops::rows(values_BS, 0, count).to(at::kFloat)
                                                : ops::rows(values_BS, 0, count).to(model_type_);
  std::vector<Tensor> parts;
  int64_t column = 0, scale = 0;
  for (const std::vector<int64_t>& shape : shapes_) {
    parts.push_back(all.dim() == 4 ? ops::rows(all, 0, count) : ops::columns(all, count, column, shape));
    if (!as_stored && type_ == CacheType::int8) {
      std::vector<int64_t> of_scales = shape;
      of_scales.back() = 1;
      parts.back() = parts.back().mul(ops::columns(scales_BSY, count, scale, of_scales)).to(model_type_);
    }
    column += numbers(shape), scale += scales(shape);
  }
  return parts;
}

std::vector<Tensor> KeyRows::read_scales(int64_t count) const {
  std::vector<Tensor> parts;
  if (!scales_BSY.defined() || model_type_ != at::kFloat) return parts;
  int64_t column = 0;
  for (const std::vector<int64_t>& shape : shapes_) {
    parts.push_back(ops::columns(scales_BSY, count, column, at::IntArrayRef(shape).slice(0, shape.size() - 1)));
    column += scales(shape);
  }
  return parts;
}

void KeyRows::keep(int64_t from, int64_t count, int64_t capacity) {
  for (Tensor* t : {&values_BS, &scales_BSY}) {
    if (!t->defined()) continue;
    const Tensor kept = rows_of(*t, capacity, t->sizes().slice(2), t->scalar_type());
    kept.narrow(1, 0, count).copy_(t->narrow(1, from, count));
    *t = kept;
  }
}

void KeyRows::move_to_front(int64_t from, int64_t count) {
  for (const Tensor* t : {&values_BS, &scales_BSY})
    if (t->defined()) t->narrow(1, 0, count).copy_(t->narrow(1, from, count));
}

void KeyRows::add_memory(std::vector<MemoryOf>& all) const {
  for (const Tensor* t : {&values_BS, &scales_BSY})
    if (t->defined()) all.emplace_back(*t);
}

KeyRows KeyRows::beginning(int64_t count, int64_t capacity) const {
  KeyRows copy = *this;
  copy.keep(0, count, capacity);
  return copy;
}

void KeyRows::repeat(int64_t times) {
  for (Tensor* t : {&values_BS, &scales_BSY})
    if (t->defined()) *t = turned(turned(*t).repeat_interleave(times, 0));
}

int64_t KeyRows::bytes() const {
  return static_cast<int64_t>(values_BS.nbytes() + (scales_BSY.defined() ? scales_BSY.nbytes() : 0));
}

namespace {

// The tensors that share a row: keys, values, the parts of each mix, without those that are absent.
struct Held {
  Tensor *tensor, *scale;
};
using Group = c10::SmallVector<Held, 4>;
std::array<Group, 4> groups(HeldKeys& held) {
  Keys& keys = held.keys;
  KeyScales& scales = held.scales;
  const auto parts = [](KeyMix& mix, KeyMix& scale) {
    Group group;
    for (const Held& part : {Held{&mix.down_BSRH, &scale.down_BSRH},
                             {&mix.up_BSRH, &scale.up_BSRH},
                             {&mix.gate_BSH, &scale.gate_BSH},
                             {&mix.full_BSHH, &scale.full_BSHH}})
      if (part.tensor->defined()) group.push_back(part);
    return group;
  };
  return {Group{{&keys.k_BSGD, &scales.k_BSG}}, Group{{&keys.v_BSGE, &scales.v_BSG}}, parts(keys.pre, scales.pre),
          parts(keys.post, scales.post)};
}

}  // namespace

template <class Write>
HeldKeys LayerCache::with(const Keys& added, int64_t count, bool narrow, const Write& write) {
  HeldKeys held{added, {}};
  size_t i = 0;
  for (const Group& group : groups(held)) {
    if (group.empty()) continue;
    c10::SmallVector<Tensor, 4> tensors;
    for (const Held& part : group) tensors.push_back(*part.tensor);
    write(i, at::TensorList(tensors));
    std::vector<Tensor> all = rows_[i].read(count, narrow), scales;
    if (narrow) scales = rows_[i].read_scales(count);
    for (size_t part = 0; part < group.size(); ++part) {
      *group[part].tensor = std::move(all[part]);
      if (!scales.empty()) *group[part].scale = std::move(scales[part]);
    }
    ++i;
  }
  return held;
}

HeldKeys LayerCache::append(const Keys& added, bool narrow) {
  const int64_t end = held_ + added.k_BSGD.size(1),
                first = std::clamp(2 * end, std::min(kFirstCapacity, capacity_), capacity_);
  HeldKeys all = with(added, end, narrow, [&](size_t i, at::TensorList group) {
    const bool by_head = narrow && i < 2;  // keys and values, where the operator reads them as they are stored
    if (i == rows_.size())
      rows_.emplace_back(group, type_, std::max(first, end), by_head ? RowOrder::by_head : RowOrder::side_by_side);
    rows_[i].write(held_, group, capacity_);
  });
  held_ = end;
  return all;
}

HeldKeys LayerCache::append_at(const Tensor& place_1, const Keys& added, bool narrow) {
  return with(added, rows_.front().capacity(), narrow,
              [&](size_t i, at::TensorList group) { rows_[i].write_at(place_1, group); });
}

void LayerCache::appended() {
  ++held_;
  if (window_ > 0) keep_window(window_);
}

void LayerCache::add_memory(std::vector<MemoryOf>& all) const {
  for (const KeyRows& t : rows_) t.add_memory(all);
}

void LayerCache::keep_window(int64_t window) {
  window_ = window;
  if (held_ < 2 * window) return;
  for (KeyRows& t : rows_) {
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
  const int64_t most = window_ > 0 ? std::min(capacity, std::max(2 * window_, copy.held_)) : capacity;
  const int64_t first = std::clamp(2 * copy.held_, std::min(kFirstCapacity, most), most);
  for (const KeyRows& t : rows_) copy.rows_.push_back(t.beginning(copy.held_, first));
  return copy;
}

void LayerCache::repeat(int64_t times) {
  for (KeyRows& t : rows_) t.repeat(times);
}

int64_t LayerCache::bytes() const {
  int64_t sum = 0;
  for (const KeyRows& t : rows_) sum += t.bytes();
  return sum;
}

}  // namespace motet
