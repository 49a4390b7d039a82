// Needles among noise: a few tokens tell a key's value, the others tell nothing; the key of one of them is asked for.
// How much attention the noise takes decides, the more so in texts longer than those of the training (MAD's noisy
// recall).
#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/fields.h"
#include "motet/tasks/entries.h"

namespace motet {
namespace {

struct Options {
  int64_t tokens = 64;  // needles and noise
  int64_t needles = 8;
  bool fewer = true;  // 1 to `needles`, else exactly so many
  int64_t keys = 64, values = 8, noise = 128;
};

const Fields<Options>& table() {
  static const Fields<Options> all{{"tokens", &Options::tokens, {1, 1e6}, "needles and noise of an episode"},
                                   {"needles", &Options::needles, {1, 4096}, "needles at most"},
                                   {"fewer", &Options::fewer, "draw 1 to that number, else exactly that"},
                                   {"keys", &Options::keys, {1, 65536}, "keys"},
                                   {"values", &Options::values, {2, 65536}, "values"},
                                   {"noise", &Options::noise, {1, 65536}, "tokens that tell nothing"}};
  return all;
}

class NoisyRecall : public Task {
 public:
  explicit NoisyRecall(const Options& o) : o_(o) {}

  // Values, keys that are asked for, noise, needles.
  int64_t vocabulary() const override { return o_.values + o_.keys + o_.noise + o_.keys * o_.values; }
  int64_t length() const override { return o_.tokens + 1; }
  int64_t answers() const override { return o_.values; }
  std::vector<std::string> kinds() const override { return {"answer", "other needles", "noise", "question"}; }

  // "3", "key 5?", "noise 7", "key 5 is 3".
  std::string word(int32_t id) const override {
    const int64_t noise = id - o_.values - o_.keys, needle = noise - o_.noise;
    if (id < o_.values) return text(id);
    if (noise < 0) return text("key ", id - o_.values, "?");
    if (needle < 0) return text("noise ", noise);
    return text("key ", needle / o_.values, " is ", needle % o_.values);
  }

  Episode episode(uint64_t seed, uint64_t number, bool) const override {
    Draws draws(seed, number);
    const int64_t needles = o_.fewer ? 1 + draws.below(o_.needles) : o_.needles;
    const std::vector<int64_t> keys = draws.different(needles, o_.keys), places = draws.different(needles, o_.tokens);
    Episode out;
    out.told = needles;
    for (int64_t i = 0; i < o_.tokens; ++i)
      out.ids.push_back(static_cast<int32_t>(o_.values + o_.keys + draws.below(o_.noise)));
    out.kinds.assign(static_cast<size_t>(o_.tokens), 2);
    for (int64_t i = 0; i < needles; ++i) {
      out.kinds[static_cast<size_t>(places[static_cast<size_t>(i)])] = i == 0 ? 0 : 1;
      const int64_t key = keys[static_cast<size_t>(i)], value = draws.below(o_.values);
      out.ids[static_cast<size_t>(places[static_cast<size_t>(i)])] =
          static_cast<int32_t>(o_.values + o_.keys + o_.noise + key * o_.values + value);
      if (i == 0) out.answer = {static_cast<int32_t>(value)};
      out.right += out.answer[0] == value;
    }
    out.ids.push_back(static_cast<int32_t>(o_.values + keys[0]));
    out.kinds.push_back(3);
    return out;
  }

 private:
  Options o_;
};

std::unique_ptr<Task> make(const nlohmann::json& given, const std::string& section) {
  const Options o = table().parse(given, section);
  if (o.needles > std::min(o.keys, o.tokens))
    fail_usage(section, ": needles is ", o.needles, ", want at most the ", o.keys, " keys and ", o.tokens, " tokens");
  return std::make_unique<NoisyRecall>(o);
}

}  // namespace

TaskEntry noisy_recall_entry() {
  return {"noisy-recall", "say the value of a key that stands once among noise", table().table(), make};
}

}  // namespace motet
