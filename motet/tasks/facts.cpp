// Facts among noise, of which one is asked for: is a wrong answer what the text says of something else, or nothing that
// it says at all? Differential attention's hallucinations (arXiv:2410.05258, table 4) without a judge. A fact is one
// composite token, so that a model need not first learn to join what stands side by side.
#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/fields.h"
#include "motet/tasks/entries.h"
#include "motet/tasks/slices.h"

namespace motet {
namespace {

struct Options {
  int64_t tokens = 16;  // facts and noise
  int64_t facts = 4, fewest = 2;
  int64_t entities = 4, relations = 2, values = 8, noise = 8;
};

const Fields<Options>& table() {
  static const Fields<Options> all{
      {"tokens", &Options::tokens, {1, 1e6}, "tokens of the text: facts and noise"},
      {"facts", &Options::facts, {2, 4096}, "facts at most"},
      {"fewest", &Options::fewest, {2, 4096}, "facts at least"},
      {"entities", &Options::entities, {1, 65536}, "entities that facts are about"},
      {"relations", &Options::relations, {2, 4096}, "relations, of which a fact gives one of its entity the value"},
      {"values", &Options::values, {2, 65536}, "values, all different in a text"},
      {"noise", &Options::noise, {1, 65536}, "tokens that tell nothing"}};
  return all;
}

// Half as many as facts: a question shares its entity with one fact and its relation with others.
int64_t entities_of(int64_t facts) { return (facts + 1) / 2; }

class Facts : public Task {
 public:
  explicit Facts(const Options& o) : o_(o) {}

  // Values, noise, "entity's relation?", "entity's relation is value".
  int64_t vocabulary() const override { return first_fact() + pairs() * o_.values; }
  int64_t length() const override { return o_.tokens + 1; }
  int64_t answers() const override { return o_.values; }
  std::vector<std::string> kinds() const override { return {"answer", "other facts", "noise", "question"}; }
  std::string word(int32_t id) const override {
    const auto pair = [&](int64_t i) { return text("entity ", i / o_.relations, "'s relation ", i % o_.relations); };
    if (id < o_.values) return text("value ", id);
    if (id < first_question()) return text("noise ", id - o_.values);
    if (id < first_fact()) return pair(id - first_question()) + "?";
    return text(pair((id - first_fact()) / o_.values), " is value ", (id - first_fact()) % o_.values);
  }

  // A question is made of its entity, its relation and that it asks; a fact of its entity, its relation and its value.
  std::vector<std::vector<int32_t>> parts() const override {
    const int64_t entity = first_question(), relation = entity + o_.entities, value = relation + o_.relations,
                  asks = value + o_.values;
    std::vector<std::vector<int32_t>> all;
    for (int64_t id = 0; id < first_question(); ++id) all.push_back({static_cast<int32_t>(id)});
    const auto add = [&](int64_t pair, int64_t last) {
      all.push_back({static_cast<int32_t>(entity + pair / o_.relations),
                     static_cast<int32_t>(relation + pair % o_.relations), static_cast<int32_t>(last)});
    };
    for (int64_t pair = 0; pair < pairs(); ++pair) add(pair, asks);
    for (int64_t pair = 0; pair < pairs(); ++pair)
      for (int64_t i = 0; i < o_.values; ++i) add(pair, value + i);
    return all;
  }

  Episode episode(uint64_t seed, uint64_t number, bool) const override {
    Draws draws(seed, number);
    const int64_t count = o_.fewest + draws.below(o_.facts - o_.fewest + 1), entities = entities_of(count);
    const std::vector<int64_t> about = draws.different(entities, o_.entities),
                               drawn = draws.different(count, entities * o_.relations),
                               values = draws.different(count, o_.values);
    std::vector<int64_t> places = draws.different(count, o_.tokens);
    std::ranges::sort(places);
    const int64_t asked = draws.below(count);
    Episode out;
    for (int64_t i = 0; i < o_.tokens; ++i) out.ids.push_back(static_cast<int32_t>(o_.values + draws.below(o_.noise)));
    out.kinds.assign(out.ids.size(), 2);
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i), place = static_cast<size_t>(places[at]);
      const int64_t pair =
          about[static_cast<size_t>(drawn[at] / o_.relations)] * o_.relations + drawn[at] % o_.relations;
      out.ids[place] = static_cast<int32_t>(first_fact() + pair * o_.values + values[at]);
      out.kinds[place] = i == asked ? 0 : 1;
      if (i != asked) {
        out.others.push_back({static_cast<int32_t>(values[at])});
        continue;
      }
      out.answer = {static_cast<int32_t>(values[at])};
      out.slices = {count_slice("facts", count, o_.facts), depth_slice(places[static_cast<size_t>(asked)], o_.tokens)};
      out.ids.push_back(static_cast<int32_t>(first_question() + pair));
    }
    out.kinds.push_back(3);
    return out;
  }

 private:
  int64_t pairs() const { return o_.entities * o_.relations; }
  int64_t first_question() const { return o_.values + o_.noise; }
  int64_t first_fact() const { return first_question() + pairs(); }

  Options o_;
};

std::unique_ptr<Task> make(const nlohmann::json& given, const std::string& section) {
  const Options o = table().parse(given, section);
  if (o.fewest > o.facts) fail_usage(section, ": fewest is ", o.fewest, ", want at most the ", o.facts, " facts");
  if (o.facts > o.tokens || o.facts > o.values || entities_of(o.facts) > o.entities)
    fail_usage(section, ": facts is ", o.facts, ", want at most the ", o.tokens, " tokens, the ", o.values,
               " values and twice the ", o.entities, " entities");
  if (const int64_t all = o.entities * o.relations * o.values; all > kMostComposite)
    fail_usage(section, ": ", o.entities, " entities, ", o.relations, " relations and ", o.values, " values make ", all,
               " facts, want at most a million");
  return std::make_unique<Facts>(o);
}

}  // namespace

TaskEntry facts_entry() {
  return {"facts", "say the value that a text gives to one thing among others", table().table(), make};
}

}  // namespace motet
