// WHERE and SELECT: among items with several fields, find the one whose field s is a, and say its field o. Plain heads
// bind what they look for to what they take; heads that are composed do not (DCFormer's argument).
//
// An episode: "s is a"; o, another field; items, each one composite token, of exactly one of which s is a; a token that
// asks. The answer is that item's value of o. The question stands first, so that in causal attention the items see it.
#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/fields.h"
#include "motet/tasks/entries.h"

namespace motet {
namespace {

struct Options {
  int64_t fields = 6, values = 4, items = 6;
  int64_t held_out = 6;  // of the pairs (s, o): in tests alone
};

const Fields<Options>& table() {
  static const Fields<Options> all{
      {"fields", &Options::fields, {2, 16}, "fields of an item"},
      {"values", &Options::values, {2, 64}, "values of a field"},
      {"items", &Options::items, {2, 1024}, "items of an episode"},
      {"held_out", &Options::held_out, {0, 200}, "pairs of fields that are never trained"}};
  return all;
}

constexpr uint64_t kPairsSeed = 17;  // which pairs are held out is part of the task

class WhereSelect : public Task {
 public:
  explicit WhereSelect(const Options& o) : o_(o) {
    for (int64_t i = 0; i < o.fields; ++i) all_items_ *= o.values;
    for (int64_t s = 0; s < o.fields; ++s)
      for (int64_t by = 1; by < o.fields; ++by) pairs_.emplace_back(s, (s + by) % o.fields);
    const std::vector<int64_t> order =
        Draws(kPairsSeed, 0).different(static_cast<int64_t>(pairs_.size()), static_cast<int64_t>(pairs_.size()));
    std::vector<std::pair<int64_t, int64_t>> shuffled;
    for (const int64_t i : order) shuffled.push_back(pairs_[static_cast<size_t>(i)]);
    pairs_ = shuffled;
  }

  // Every field stands in a trained pair as s and as o.
  bool each_field_is_trained() const {
    for (int64_t f = 0; f < o_.fields; ++f) {
      bool where = false, select = false;
      for (size_t i = static_cast<size_t>(o_.held_out); i < pairs_.size(); ++i)
        where |= pairs_[i].first == f, select |= pairs_[i].second == f;
      if (!where || !select) return false;
    }
    return true;
  }

  // Answers, fields that are asked for, the token that asks, "s is a", items.
  int64_t vocabulary() const override { return first_item() + all_items_; }
  int64_t length() const override { return o_.items + 3; }
  int64_t answers() const override { return o_.values; }

  Episode episode(uint64_t seed, uint64_t number, bool test) const override {
    Draws draws(seed, number);
    const int64_t first = test ? 0 : o_.held_out;
    const int64_t pair = first + draws.below(static_cast<int64_t>(pairs_.size()) - first);
    const auto [s, o] = pairs_[static_cast<size_t>(pair)];
    const int64_t a = draws.below(o_.values), found = draws.below(o_.items);
    Episode out{.ids = {}, .answer = {}, .slices = {pair < o_.held_out ? "held out" : "seen"}};
    std::vector<int64_t> told;
    out.ids.push_back(static_cast<int32_t>(o_.values + o_.fields + 1 + s * o_.values + a));
    out.ids.push_back(static_cast<int32_t>(o_.values + o));
    out.kinds.assign(static_cast<size_t>(length()), 2);
    std::fill_n(out.kinds.begin() + 2, o_.items, 1);
    out.kinds[static_cast<size_t>(2 + found)] = 0;
    for (int64_t item = 0; item < o_.items; ++item) {
      int64_t id = 0;
      for (int64_t f = 0; f < o_.fields; ++f) {
        int64_t value = draws.below(f == s ? o_.values - 1 : o_.values);
        if (f == s) value = item == found ? a : value + (value >= a);
        if (f == o) told.push_back(value);
        id = id * o_.values + value;
      }
      out.ids.push_back(static_cast<int32_t>(first_item() + id));
    }
    out.ids.push_back(static_cast<int32_t>(o_.values + o_.fields));
    const int64_t answer = told[static_cast<size_t>(found)];
    out.answer = {static_cast<int32_t>(answer)};
    out.told = o_.items, out.right = std::ranges::count(told, answer);
    return out;
  }

  std::vector<std::string> kinds() const override { return {"item", "other items", "question"}; }

  // "3", "field 2", "?", "field 2 is 3", "(3 0 1 2)".
  std::string word(int32_t id) const override {
    const int64_t where = id - o_.values - o_.fields - 1;
    if (id < o_.values) return text(id);
    if (id < o_.values + o_.fields) return text("field ", id - o_.values);
    if (where < 0) return "?";
    if (id < first_item()) return text("field ", where / o_.values, " is ", where % o_.values);
    std::string fields;
    for (int64_t f = 0, rest = id - first_item(); f < o_.fields; ++f, rest /= o_.values)
      fields = text(rest % o_.values, f == 0 ? "" : " ", fields);
    return "(" + fields + ")";
  }

  // An item is made of its values; everything else is its own.
  std::vector<std::vector<int32_t>> parts() const override {
    std::vector<std::vector<int32_t>> all;
    for (int64_t id = 0; id < first_item(); ++id) all.push_back({static_cast<int32_t>(id)});
    for (int64_t item = 0; item < all_items_; ++item) {
      std::vector<int32_t> own;
      for (int64_t f = o_.fields, rest = item; f-- > 0; rest /= o_.values)
        own.push_back(static_cast<int32_t>(first_item() + f * o_.values + rest % o_.values));
      all.push_back(own);
    }
    return all;
  }

 private:
  int64_t first_item() const { return o_.values + o_.fields + 1 + o_.fields * o_.values; }

  Options o_;
  int64_t all_items_ = 1;
  std::vector<std::pair<int64_t, int64_t>> pairs_;  // (s, o), those held out first
};

std::unique_ptr<Task> make(const nlohmann::json& given, const std::string& section) {
  const Options o = table().parse(given, section);
  double items = 1;
  for (int64_t i = 0; i < o.fields; ++i) items *= static_cast<double>(o.values);
  if (items > kMostComposite)
    fail_usage(section, ": ", o.fields, " fields of ", o.values, " values make ", items,
               " items, want at most a million");
  auto task = std::make_unique<WhereSelect>(o);
  if (o.held_out >= o.fields * (o.fields - 1) || !task->each_field_is_trained())
    fail_usage(section, ": held_out is ", o.held_out, " of ", o.fields * (o.fields - 1),
               " pairs, want fewer: each field has to be trained as what is looked for and as what is asked for");
  return task;
}

}  // namespace

TaskEntry where_select_entry() {
  return {"where-select", "find the item whose field s is a, and say its field o", table().table(), make};
}

}  // namespace motet
