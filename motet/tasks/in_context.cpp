// Classes whose names hold for one episode: examples with their labels, then one more example, whose label is asked
// for. Many-shot learning and its dependence on the order of examples (differential attention, arXiv:2410.05258,
// figures 6 and 7) without a text that could have been learned by heart. Each word of an example is one composite token
// with its label, so that a model need not first learn to join what stands side by side.
#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/fields.h"
#include "motet/tasks/entries.h"
#include "motet/tasks/slices.h"

namespace motet {
namespace {

enum class Order { random, alternating, by_class };

struct Options {
  int64_t ways = 4, shots = 2;
  bool fewer = true;  // 1 to `shots`, else exactly so many
  Order order = Order::random;
  int64_t orders = 1;
  int64_t labels = 8, words = 2, typical = 2, vocabulary = 16, common = 8;
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

struct Example {
  int64_t label_of;  // the class
  std::vector<int64_t> words;
};

class Episodes : public Task {
 public:
  explicit Episodes(const Options& o) : o_(o) {}

  // Labels, filler, words of the question, words of examples with their labels.
  int64_t vocabulary() const override { return first_shown() + words() * o_.labels; }
  int64_t length() const override { return (o_.ways * o_.shots + 1) * o_.words; }
  int64_t answers() const override { return o_.labels; }
  std::vector<std::string> kinds() const override { return {"its examples", "other examples", "filler", "question"}; }
  std::string word(int32_t id) const override {
    const auto word = [&](int64_t i) {
      return i < o_.vocabulary ? text("word ", i) : text("common ", i - o_.vocabulary);
    };
    if (id < o_.labels) return text("label ", id);
    if (id < first_asked()) return "-";
    if (id < first_shown()) return word(id - first_asked()) + "?";
    return text(word((id - first_shown()) / o_.labels), " of label ", (id - first_shown()) % o_.labels);
  }

  // A word of the question is made of itself and that it asks, a word of an example of itself and its label.
  std::vector<std::vector<int32_t>> parts() const override {
    const int64_t word = first_asked(), asks = word + words(), label = asks + 1;
    std::vector<std::vector<int32_t>> all;
    for (int64_t id = 0; id < first_asked(); ++id) all.push_back({static_cast<int32_t>(id)});
    for (int64_t i = 0; i < words(); ++i) all.push_back({static_cast<int32_t>(word + i), static_cast<int32_t>(asks)});
    for (int64_t i = 0; i < words() * o_.labels; ++i)
      all.push_back({static_cast<int32_t>(word + i / o_.labels), static_cast<int32_t>(label + i % o_.labels)});
    return all;
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
      examples.push_back({i / shots, drawn(draws, {own, own + o_.typical})});
    }
    const int64_t asked = draws.below(o_.ways);
    std::vector<int64_t> seen;  // the typical words that its examples have
    for (const Example& example : examples)
      for (const int64_t word : example.words)
        if (example.label_of == asked && word < o_.vocabulary) seen.push_back(word);

    Episode out;
    const auto add = [&](int64_t id, int64_t kind) {
      out.ids.push_back(static_cast<int32_t>(id)), out.kinds.push_back(kind);
    };
    for (int64_t i = (o_.shots - shots) * o_.ways * o_.words; i > 0; --i) add(o_.labels, 2);
    for (const int64_t i : order(turns, shots)) {
      const Example& example = examples[static_cast<size_t>(i)];
      const int64_t label = labels[static_cast<size_t>(example.label_of)];
      for (const int64_t word : example.words)
        add(first_shown() + word * o_.labels + label, example.label_of == asked ? 0 : 1);
    }
    for (const int64_t word : drawn(draws, seen)) add(first_asked() + word, 3);
    for (int64_t i = 0; i < o_.ways; ++i) {
      const auto label = static_cast<int32_t>(labels[static_cast<size_t>(i)]);
      i == asked ? (void)(out.answer = {label}) : out.others.push_back({label});
    }
    if (o_.fewer && o_.shots > 1) out.slices.push_back(count_slice("shots", shots, o_.shots));
    if (o_.orders > 1) out.slices.push_back(text("order ", 1 + number % orders));
    return out;
  }

 private:
  int64_t words() const { return o_.vocabulary + o_.common; }  // those that may be typical, then common ones
  int64_t first_asked() const { return o_.labels + 1; }
  int64_t first_shown() const { return first_asked() + words(); }

  // Words of an example: one of them is typical at least, of the others about half.
  std::vector<int64_t> drawn(Draws& draws, const std::vector<int64_t>& typical) const {
    const int64_t sure = draws.below(o_.words);
    std::vector<int64_t> out;
    for (int64_t i = 0; i < o_.words; ++i)
      out.push_back(draws.below(2) == 0 || i == sure ? typical[static_cast<size_t>(draws.below(std::ssize(typical)))]
                                                     : o_.vocabulary + draws.below(o_.common));
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
  if (const int64_t all = (o.vocabulary + o.common) * o.labels; all > kMostComposite)
    fail_usage(section, ": ", o.vocabulary + o.common, " words and ", o.labels, " labels make ", all,
               " tokens, want at most a million");
  return std::make_unique<Episodes>(o);
}

}  // namespace

TaskEntry episodes_entry() {
  return {"episodes", "say the label of an example, from examples whose labels hold for one episode", table().table(),
          make};
}

}  // namespace motet
