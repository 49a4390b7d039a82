#include "motet/commands/together.h"

#include "motet/core/testing.h"
#include "motet/processes/testing.h"
#include "motet/train/trainer.h"

namespace motet {
namespace {

using testing::with_processes;

// The first process still saves when the others have ended: it must not hear that they are gone.
TEST(Together, WhatAllMeetEndsAllAndIsToldOnce) {
  with_processes(2, [](Processes& p) {
    const auto work = [&]() -> int {
      EXPECT_EQ(p.first() ? p.lost() : "", "");
      throw Diverged("step 7");
    };
    if (p.first()) {
      EXPECT_THROW(together(p, work), Diverged);
    } else {
      EXPECT_THROW(together(p, work), ToldElsewhere);
    }
  });
}

TEST(Together, WhatOneMeetsIsHeardByTheFirst) {
  with_processes(2, [](Processes& p) {
    const auto work = [&]() -> int {
      if (!p.first()) fail("no space");
      throw std::runtime_error("a connection is closed");  // as a collective says it
    };
    if (!p.first()) {
      EXPECT_THROW(together(p, work), ToldElsewhere);
      return;
    }
    const std::string said = testing::message_of<Error>([&] { together(p, work); });
    EXPECT_TRUE(said.starts_with("rank 1 (host ") && said.ends_with(") failed: no space")) << said;
  });
}

TEST(Together, AnInterruptThatOneMeetsAloneIsHeardInASum) {
  with_processes(2, [](Processes& p) {
    std::string heard;
    const auto work = [&]() -> int {
      if (p.first()) throw Interrupted("interrupted");
      try {
        p.sum(at::ones({3}));
      } catch (const std::exception&) {
        heard = p.lost();
        throw;
      }
      return 0;
    };
    if (p.first()) {
      EXPECT_THROW(together(p, work), Interrupted);
    } else {
      EXPECT_THROW(together(p, work), ToldElsewhere);
      EXPECT_TRUE(heard.ends_with(" failed: interrupted")) << heard;
    }
  });
}

TEST(Together, WhatTheFirstOneSaidItselfNobodyRepeats) {
  with_processes(2, [](Processes& p) {
    const auto work = [&]() -> int {
      if (p.first()) fail("no space");
      throw std::runtime_error("a connection is closed");
    };
    if (p.first()) {
      EXPECT_EQ(testing::message_of<Error>([&] { together(p, work); }), "no space");
    } else {
      EXPECT_THROW(together(p, work), ToldElsewhere);
    }
  });
}

}  // namespace
}  // namespace motet
