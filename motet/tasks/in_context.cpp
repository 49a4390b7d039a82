// Classes whose names hold for one episode: examples with their labels, then one more example, whose label is asked
// for. Many-shot learning and its dependence on the order of examples (differential attention, arXiv:2410.05258,
// figures 6 and 7) without a text that could have been learned by heart.
#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/fields.h"
#include "motet/tasks/entries.h"
#include "motet/tasks/slices.h"

namespace motet {
namespace {

enum class Order { random, alternating, by_class };

struct Options {
  int64_t ways = 6, shots = 4;
  bool fewer = true;  // 1 to `shots`, else exactly so many
  Order order = Order::random;
  int64_t orders = 1;
  int64_t labels = 16, words = 4, typical = 4, vocabulary = 128, common = 64;
};

const Fields<Options>& table() {
  static const Fields<Options> all{
      {"ways", &Options::ways, {2, 1024}, "classes of an episode"},
      {"shots", &Options::shots, {1, 4096}, "examples of each class at most"},
      {"fewer", &Options::fewer, "draw 1 to that number, else exactly that"},
      {"order",
       &Options::order,
       {{"random", Order::random}, {"alternating", Order::alternating}, {"by_class", Order::by_class}},
       "how examples follow one another: a class after the other in turns, or all of one class together"},
      {"orders", &Options::orders, {1, 1000}, "so many episodes have the same examples and question, in other orders"},
      {"labels", &Options::labels, {2, 65536}, "labels, of which an episode gives each class one"},
      {"words", &Options::words, {1, 256}, "words of an example"},
      {"typical", &Options::typical, {1, 256}, "words of an episode that are of one class alone"},
      {"vocabulary", &Options::vocabulary, {2, 65536}, "words that may be typical"},
      {"common", &Options::common, {1, 65536}, "words that are of no class"}};
  return all;
}

using Ids = std::vector<int32_t>;

struct Example {
  int64_t label_of;  // the class
  Ids words;
};

class Episodes : public Task {
 public:
  explicit Episodes(const Options& o) : o_(o) {}

  // Labels, words that may be typical, common words, the token in front of a label.
  int64_t vocabulary() const override { return first_common() + o_.common + 1; }
  int64_t length() const override { return o_.ways * o_.shots * (o_.words + 2) + o_.words + 1; }
  int64_t answers() const override { return o_.labels; }
  std::vector<std::string> kinds() const override {
    return {"its label", "its examples", "other labels", "other examples", "filler", "question"};
  }
  std::string word(int32_t id) const override {
    if (id < o_.labels) return text("label ", id);
    if (id < first_common()) return text("word ", id - o_.labels);
    return id < vocabulary() - 1 ? text("common ", id - first_common()) : "->";
  }

  // Episodes orders * i ... orders * i + orders - 1 are one set of examples and one question.
  Episode episode(uint64_t seed, uint64_t number, bool) const override {
    const auto orders = static_cast<uint64_t>(o_.orders);
    Draws draws(seed, number / orders), turns(splitmix64(seed, 1), number);
    const int64_t shots = o_.fewer ? 1 + draws.below(o_.shots) : o_.shots;
    const std::vector<int64_t> labels = draws.different(o_.ways, o_.labels),
                               typical = draws.different(o_.ways * o_.typical, o_.vocabulary);
    std::vector<Example> examples;  // one class after the other
    for (int64_t i = 0; i < o_.ways * shots; ++i) {
      const auto own = typical.begin() + i / shots * o_.typical;
      examples.push_back({i / shots, words(draws, {own, own + o_.typical})});
    }
    const int64_t asked = draws.below(o_.ways);
    std::vector<int64_t> shown;  // the typical words that its examples have
    for (const Example& example : examples)
      for (const int32_t word : example.words)
        if (example.label_of == asked && word < first_common()) shown.push_back(word - o_.labels);
    const Ids question = words(draws, shown);

    Episode out;
    const auto add = [&](const Ids& ids, int64_t kind) {
      out.ids.insert(out.ids.end(), ids.begin(), ids.end());
      out.kinds.resize(out.ids.size(), kind);
    };
    const auto arrow = static_cast<int32_t>(vocabulary() - 1);
    for (int64_t i = (o_.shots - shots) * o_.ways * (o_.words + 2); i > 0; --i) add({common(draws)}, 4);
    for (const int64_t i : order(turns, shots)) {
      const Example& example = examples[static_cast<size_t>(i)];
      const int64_t other = example.label_of == asked ? 0 : 2;
      add(example.words, 1 + other), add({arrow}, 1 + other);
      add({static_cast<int32_t>(labels[static_cast<size_t>(example.label_of)])}, other);
    }
    add(question, 5), add({arrow}, 5);
    for (int64_t i = 0; i < o_.ways; ++i) {
      const auto label = static_cast<int32_t>(labels[static_cast<size_t>(i)]);
      i == asked ? (void)(out.answer = {label}) : out.others.push_back({label});
    }
    if (o_.fewer && o_.shots > 1) out.slices.push_back(count_slice("shots", shots, o_.shots));
    if (o_.orders > 1) out.slices.push_back(text("order ", 1 + number % orders));
    return out;
  }

 private:
  int64_t first_common() const { return o_.labels + o_.vocabulary; }
  int32_t common(Draws& draws) const { return static_cast<int32_t>(first_common() + draws.below(o_.common)); }

  // One of them is typical at least, of the others about half.
  Ids words(Draws& draws, const std::vector<int64_t>& typical) const {
    const int64_t sure = draws.below(o_.words);
    Ids out;
    for (int64_t i = 0; i < o_.words; ++i)
      out.push_back(
          draws.below(2) == 0 || i == sure
              ? static_cast<int32_t>(o_.labels + typical[static_cast<size_t>(draws.below(std::ssize(typical)))])
              : common(draws));
    return out;
  }

  // Numbers of examples that stand one class after the other, as they are shown.
  std::vector<int64_t> order(Draws& draws, int64_t shots) const {
    const int64_t all = o_.ways * shots;
    if (o_.order == Order::random) return draws.different(all, all);
    const std::vector<int64_t> classes = draws.different(o_.ways, o_.ways);
    std::vector<std::vector<int64_t>> own;
    for (int64_t i = 0; i < o_.ways; ++i) own.push_back(draws.different(shots, shots));
    std::vector<int64_t> out;
    for (int64_t i = 0; i < all; ++i) {
      const bool turns = o_.order == Order::alternating;
      const int64_t turn = turns ? i % o_.ways : i / shots, shot = turns ? i / o_.ways : i % shots;
      const int64_t one = classes[static_cast<size_t>(turn)];
      out.push_back(one * shots + own[static_cast<size_t>(one)][static_cast<size_t>(shot)]);
    }
    return out;
  }

  Options o_;
};

std::unique_ptr<Task> make(const nlohmann::json& given, const std::string& section) {
  const Options o = table().parse(given, section);
  if (o.ways > o.labels || o.ways * o.typical > o.vocabulary)
    fail_usage(section, ": ways is ", o.ways, ", want at most the ", o.labels, " labels and ", o.vocabulary / o.typical,
               " times the ", o.typical, " typical words of a class in the vocabulary");
  return std::make_unique<Episodes>(o);
}

}  // namespace

TaskEntry episodes_entry() {
  return {"episodes", "say the label of an example, from examples whose labels hold for one episode", table().table(),
          make};
}

}  // namespace motet
