#include "motet/serve/prefixes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "motet/serve/testing.h"

namespace motet {
namespace {

using testing::CountedModel;
using Prompt = std::vector<int32_t>;

std::unique_ptr<ServedSequence> sequence_of(CountedModel& model, size_t tokens) {
  auto made = model.begin(static_cast<int64_t>(tokens));
  static_cast<CountedModel::Sequence&>(*made).ids.resize(tokens);
  return made;
}

int64_t size_of(const Prompt& prompt) { return static_cast<int64_t>(prompt.size()); }

// What prefixes.h promises, by a look at all that is kept; a prompt is whole pieces here.
struct AllLookedAt {
  struct Kept {
    std::string owner;
    Prompt prompt;
    const ServedSequence* sequence;
    int number;
  };
  const CountedModel& model;
  std::vector<Kept> all = {};  // the least recently used first
  int number = 0;

  static bool begins(const Prompt& prompt, const Prompt& with) {
    return prompt.size() >= with.size() && std::equal(with.begin(), with.end(), prompt.begin());
  }
  // The last kept that can stand for these tokens of at least so many; null: none. It counts as used.
  const ServedSequence* use(const std::string& owner, const Prompt& beginning, size_t least) {
    auto best = all.end();
    for (auto one = all.begin(); one != all.end(); ++one)
      if (one->owner == owner && one->prompt.size() >= least && begins(one->prompt, beginning) &&
          model.can_end_at(*one->sequence, size_of(beginning)) && (best == all.end() || one->number > best->number))
        best = one;
    if (best == all.end()) return nullptr;
    std::rotate(best, best + 1, all.end());
    return all.back().sequence;
  }
  void keep(const std::string& owner, const Prompt& prompt, const ServedSequence* sequence) {
    if (prompt.empty() || !model.can_end_at(*sequence, size_of(prompt)) || use(owner, prompt, prompt.size() + 1))
      return;
    std::erase_if(all, [&](const Kept& one) {
      return one.owner == owner && begins(prompt, one.prompt) && model.can_end_at(*sequence, size_of(one.prompt));
    });
    all.push_back({owner, prompt, sequence, ++number});
  }
  Prefixes::Found find(const std::string& owner, Prompt beginning) {
    for (; !beginning.empty(); beginning.resize(beginning.size() - kPieceTokens))
      if (const auto* found = use(owner, beginning, 0)) return {found, size_of(beginning)};
    return {};
  }
};

TEST(Prefixes, FindsWhatALookAtAllOfThemFinds) {
  for (const int64_t window : {0, 20, 70}) {
    CountedModel model;
    model.window = window;
    Prefixes prefixes(model);
    AllLookedAt expected{model};
    std::mt19937 random(3);
    int64_t found_tokens = 0;
    for (int i = 0; i < 3000; ++i) {
      Prompt prompt;
      for (size_t pieces = random() % 5; pieces > 0; --pieces)
        prompt.insert(prompt.end(), kPieceTokens, static_cast<int32_t>(random() % 2));
      const Prompt whole = prompt;
      prompt.insert(prompt.end(), 1 + random() % 63, 7);
      const std::string owner(1, static_cast<char>('a' + random() % 2));
      switch (random() % 4) {
        case 0:
          ASSERT_EQ(prefixes.drop(), !expected.all.empty());
          if (!expected.all.empty()) expected.all.erase(expected.all.begin());
          break;
        case 1: {
          const Prefixes::Found found = prefixes.find(owner, prompt), wanted = expected.find(owner, whole);
          ASSERT_EQ(found.sequence, wanted.sequence);
          ASSERT_EQ(found.tokens, wanted.tokens);
          found_tokens += found.tokens;
          break;
        }
        default: {
          auto sequence = sequence_of(model, prompt.size() + random() % 100);
          expected.keep(owner, whole, sequence.get());
          prefixes.keep(owner, prompt, std::move(sequence));
        }
      }
      ASSERT_EQ(model.alive, static_cast<int64_t>(expected.all.size()));
      int64_t bytes = 0;
      for (const auto& one : expected.all) bytes += one.sequence->bytes() + 4 * size_of(one.prompt);
      ASSERT_EQ(prefixes.bytes(), bytes);
    }
    EXPECT_GT(found_tokens, 0);
  }
}

TEST(Prefixes, WhatIsKeptBesideIsNotLookedAt) {
  CountedModel model;
  model.window = 20;  // of each other one a walk would ask whether it can end where the prompts part
  const auto asked = [&](int32_t others) {
    Prefixes prefixes(model);
    Prompt prompt(3 * kPieceTokens, 1);
    for (int32_t i = 0; i < others; ++i) {
      prompt.back() = 2 + i;
      prefixes.keep("", prompt, sequence_of(model, prompt.size()));
    }
    const int64_t before = model.asked;
    prompt.push_back(1), prompt[kPieceTokens] = 0;
    prefixes.find("", prompt);
    prefixes.keep("", prompt, sequence_of(model, prompt.size()));
    return model.asked - before;
  };
  EXPECT_EQ(asked(200), asked(2));
}

}  // namespace
}  // namespace motet
