// A number hidden once in text that says nothing, and asked for at its end: how far back does a model find? The
// template and its filler are those of Landmark attention (arXiv:2305.16300) as CoCA prints them (arXiv:2309.08646), in
// words.
#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/fields.h"
#include "motet/tasks/entries.h"
#include "motet/tasks/slices.h"

namespace motet {
namespace {

enum class Filler { sentences, words };

struct Options {
  int64_t tokens = 128;
  int64_t digits = 3;
  int64_t trained = 0;
  Filler filler = Filler::sentences;
};

const Fields<Options>& table() {
  static const Fields<Options> all{
      {"tokens", &Options::tokens, {1, 1e6}, "words of an episode, its question among them"},
      {"digits", &Options::digits, {1, 9}, "digits of the number"},
      {"trained", &Options::trained, {0, 1e6}, "T of the slices by distance, the tokens of the training; 0: as tokens"},
      {"filler",
       &Options::filler,
       {{"sentences", Filler::sentences}, {"words", Filler::words}},
       "five sentences again and again, or words at random"}};
  return all;
}

using Ids = std::vector<int32_t>;

// Behind the ten digits; the words of the key's sentence and of the question come first and are never random filler.
constexpr const char* kMarkers = "the passkey is remember it what ? .";
constexpr const char* kWords =
    "grass green sky blue sun yellow here we go there and back again an important info hidden inside a lot of "
    "irrelevant text find memorize them i will quiz you about information "
    "moon white sea deep hill high road long house old";
constexpr int32_t kDigits = 10;

const std::vector<std::string>& vocabulary_words() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> words;
    for (int digit = 0; digit < kDigits; ++digit) words.push_back(std::to_string(digit));
    for (const char* list : {kMarkers, kWords})
      for (const std::string& word : split(list, ' ')) words.push_back(word);
    return words;
  }();
  return all;
}

Ids ids_of(const std::string& sentence) {
  Ids ids;
  for (const std::string& word : split(sentence, ' '))
    ids.push_back(static_cast<int32_t>(std::ranges::find(vocabulary_words(), word) - vocabulary_words().begin()));
  return ids;
}

// What stands in every episode.
struct Template {
  Ids beginning = ids_of(
      "there is an important info hidden inside a lot of irrelevant text . find it and memorize them . i will quiz you "
      "about the important information there .");
  Ids filler = ids_of("the grass is green . the sky is blue . the sun is yellow . here we go . there and back again .");
  Ids before = ids_of("the passkey is"), between = ids_of(". remember it ."), after = ids_of("is the passkey .");
  Ids question = ids_of("what is the passkey ?");
  int64_t size(int64_t digits) const {
    return std::ssize(beginning) + std::ssize(before) + std::ssize(between) + std::ssize(after) + std::ssize(question) +
           2 * digits;
  }
};
const Template& sentences() {
  static const Template all;
  return all;
}

class Passkey : public Task {
 public:
  explicit Passkey(const Options& o) : o_(o), filler_(o.tokens - sentences().size(o.digits)) {
    if (o_.trained == 0) o_.trained = o_.tokens;
    for (int64_t i = 0; i < o.digits; ++i) answers_ *= kDigits;
  }

  int64_t vocabulary() const override { return std::ssize(vocabulary_words()); }
  int64_t length() const override { return o_.tokens; }
  int64_t answer_length() const override { return o_.digits; }
  int64_t answers() const override { return answers_; }
  std::vector<std::string> kinds() const override { return {"key", "its sentence", "filler", "question"}; }
  std::string word(int32_t id) const override { return vocabulary_words()[static_cast<size_t>(id)]; }

  Episode episode(uint64_t seed, uint64_t number, bool) const override {
    const Template& says = sentences();
    Draws draws(seed, number);
    Episode out;
    for (int64_t i = 0; i < o_.digits; ++i) out.answer.push_back(static_cast<int32_t>(draws.below(kDigits)));
    const int64_t before = draws.below(filler_ + 1);  // words of filler in front of the key
    const auto add = [&](const Ids& words, int64_t kind) {
      out.ids.insert(out.ids.end(), words.begin(), words.end());
      out.kinds.resize(out.ids.size(), kind);
    };
    add(says.beginning, 2);
    add(filler(draws, before), 2);
    add(says.before, 1);
    const int64_t key = std::ssize(out.ids);
    add(out.answer, 0), add(says.between, 1), add(out.answer, 0), add(says.after, 1);
    add(filler(draws, filler_ - before), 2);
    add(says.question, 3);
    out.slices = {o_.tokens - 1 - key < o_.trained ? "distance < T" : "distance >= T",
                  depth_slice(before, filler_ + 1)};
    return out;
  }

 private:
  // Begins anew with its first sentence, and may be cut anywhere, as the published one is.
  Ids filler(Draws& draws, int64_t count) const {
    const Ids& sentence = sentences().filler;
    const auto first = static_cast<int64_t>(split(kMarkers, ' ').size()) + kDigits;
    Ids words;
    for (int64_t i = 0; i < count; ++i)
      words.push_back(o_.filler == Filler::sentences ? sentence[static_cast<size_t>(i) % sentence.size()]
                                                     : static_cast<int32_t>(first + draws.below(vocabulary() - first)));
    return words;
  }

  Options o_;
  int64_t filler_, answers_ = 1;
};

std::unique_ptr<Task> make(const nlohmann::json& given, const std::string& section) {
  const Options o = table().parse(given, section);
  const int64_t least = sentences().size(o.digits) + 4;  // a word of filler for each quarter of the depth
  if (o.tokens < least)
    fail_usage(section, ": tokens is ", o.tokens, ", want at least ", least, " for the sentences and some filler");
  return std::make_unique<Passkey>(o);
}

}  // namespace

TaskEntry passkey_entry() {
  return {"passkey", "say the number that is hidden once in a long text", table().table(), make,
          [](nlohmann::json& all) {
            if (all.at("trained") == 0) all["trained"] = all.at("tokens");
          }};
}

}  // namespace motet
