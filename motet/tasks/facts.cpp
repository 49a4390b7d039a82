// Facts among noise, of which one is asked for: is a wrong answer what the text says of something else, or nothing that
// it says at all? Differential attention's hallucinations (arXiv:2410.05258, table 4) without a judge.
#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/fields.h"
#include "motet/tasks/entries.h"
#include "motet/tasks/slices.h"

namespace motet {
namespace {

struct Options {
  int64_t tokens = 96;  // facts and noise
  int64_t facts = 16, fewest = 4;
  int64_t entities = 32, relations = 4, values = 32, noise = 64;
};

const Fields<Options>& table() {
  static const Fields<Options> all{
      {"tokens", &Options::tokens, {1, 1e6}, "tokens of the text: facts of three and noise"},
      {"facts", &Options::facts, {2, 4096}, "facts at most"},
      {"fewest", &Options::fewest, {2, 4096}, "facts at least"},
      {"entities", &Options::entities, {1, 65536}, "entities that facts are about"},
      {"relations", &Options::relations, {2, 4096}, "relations, of which a fact gives one of its entity the value"},
      {"values", &Options::values, {2, 65536}, "values, all different in a text"},
      {"noise", &Options::noise, {1, 65536}, "tokens that tell nothing"}};
  return all;
}

constexpr int64_t kFact = 3;  // an entity, a relation, a value

// Half as many as facts: a question shares its entity with one fact and its relation with others.
int64_t entities_of(int64_t facts) { return (facts + 1) / 2; }

class Facts : public Task {
 public:
  explicit Facts(const Options& o) : o_(o) {}

  // Values, entities, relations, noise, the token that asks.
  int64_t vocabulary() const override { return first_noise() + o_.noise + 1; }
  int64_t length() const override { return o_.tokens + kFact; }
  int64_t answers() const override { return o_.values; }
  std::vector<std::string> kinds() const override {
    return {"answer", "its fact", "other values", "other facts", "noise", "question"};
  }
  std::string word(int32_t id) const override {
    if (id < o_.values) return text("value ", id);
    if (id < o_.values + o_.entities) return text("entity ", id - o_.values);
    if (id < first_noise()) return text("relation ", id - o_.values - o_.entities);
    return id < first_noise() + o_.noise ? text("noise ", id - first_noise()) : "?";
  }

  Episode episode(uint64_t seed, uint64_t number, bool) const override {
    Draws draws(seed, number);
    const int64_t count = o_.fewest + draws.below(o_.facts - o_.fewest + 1), entities = entities_of(count);
    const std::vector<int64_t> about = draws.different(entities, o_.entities),
                               pairs = draws.different(count, entities * o_.relations),
                               values = draws.different(count, o_.values);
    std::vector<int64_t> places = draws.different(count, o_.tokens - (kFact - 1) * count);
    std::ranges::sort(places);
    const int64_t asked = draws.below(count);
    Episode out;
    for (int64_t i = 0; i < o_.tokens; ++i)
      out.ids.push_back(static_cast<int32_t>(first_noise() + draws.below(o_.noise)));
    out.kinds.assign(out.ids.size(), 4);
    std::vector<int32_t> question;
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i), place = static_cast<size_t>(places[at] + (kFact - 1) * i);
      const int32_t fact[] = {static_cast<int32_t>(o_.values + about[static_cast<size_t>(pairs[at] / o_.relations)]),
                              static_cast<int32_t>(o_.values + o_.entities + pairs[at] % o_.relations),
                              static_cast<int32_t>(values[at])};
      for (size_t part = 0; part < kFact; ++part) {
        out.ids[place + part] = fact[part];
        out.kinds[place + part] = (part + 1 == kFact ? 0 : 1) + (i == asked ? 0 : 2);
      }
      if (i == asked)
        out.answer = {fact[2]}, question = {fact[0], fact[1]};
      else
        out.others.push_back({fact[2]});
      if (i == asked) out.slices = {count_slice("facts", count, o_.facts), depth_slice(asked, count)};
    }
    question.push_back(static_cast<int32_t>(vocabulary() - 1));
    out.ids.insert(out.ids.end(), question.begin(), question.end());
    out.kinds.resize(out.ids.size(), 5);
    return out;
  }

 private:
  int64_t first_noise() const { return o_.values + o_.entities + o_.relations; }

  Options o_;
};

std::unique_ptr<Task> make(const nlohmann::json& given, const std::string& section) {
  const Options o = table().parse(given, section);
  if (o.fewest > o.facts) fail_usage(section, ": fewest is ", o.fewest, ", want at most the ", o.facts, " facts");
  if (kFact * o.facts > o.tokens || o.facts > o.values || entities_of(o.facts) > o.entities)
    fail_usage(section, ": facts is ", o.facts, ", want at most a third of the ", o.tokens, " tokens, the ", o.values,
               " values and twice the ", o.entities, " entities");
  return std::make_unique<Facts>(o);
}

}  // namespace

TaskEntry facts_entry() {
  return {"facts", "say the value that a text gives to one thing among others", table().table(), make};
}

}  // namespace motet
