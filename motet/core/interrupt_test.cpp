#include "motet/core/interrupt.h"

#include <csignal>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

TEST(Interrupt, TheFirstSignalSetsTheFlag) {
  for (const auto& [signal, wanted] : {std::pair(SIGINT, 130), {SIGTERM, 143}, {SIGUSR1, 138}, {SIGHUP, 129}}) {
    EXPECT_EXIT(
        {
          std::signal(signal, SIG_DFL);  // as nobody ignores it who runs these tests
          install_interrupt_handler();
          check_interrupt();
          const bool before = interrupted();
          std::raise(signal);
          int code = 1;
          try {
            check_interrupt();
          } catch (const Interrupted& error) {
            code = error.exit_code();
          }
          ::_exit(!before && interrupted() ? code : 1);
        },
        ::testing::ExitedWithCode(wanted), "");
  }
}

TEST(Interrupt, ResumedWorkIsInterruptedAnew) {
  EXPECT_EXIT(
      {
        install_interrupt_handler();
        std::raise(SIGINT);
        resume_after_interrupt();
        const bool between = interrupted();
        std::raise(SIGINT);
        ::_exit(!between && interrupted() && Interrupted("").exit_code() == 130 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Interrupt, WhereALibraryWaitsTheFirstSignalEndsTheProcess) {
  for (const auto& [signal, wanted] : {std::pair(SIGINT, 130), {SIGTERM, 143}, {SIGUSR1, 138}, {SIGHUP, 129}})
    EXPECT_EXIT(
        {
          std::signal(signal, SIG_DFL);
          install_interrupt_handler();
          const InterruptEnds at_once(true);
          std::raise(signal);
          ::_exit(1);
        },
        ::testing::ExitedWithCode(wanted), "^motet: interrupted\n$");
  EXPECT_EXIT(
      {
        const InterruptEnds quietly(false);
        std::raise(SIGINT);
      },
      ::testing::ExitedWithCode(130), "^$");
  EXPECT_EXIT(
      {
        install_interrupt_handler();
        {
          const InterruptEnds before(true);
        }
        std::raise(SIGINT);
        bool thrown = false;
        try {
          const InterruptEnds too_late(true);
        } catch (const Interrupted&) {
          thrown = true;
        }
        ::_exit(thrown ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// nohup starts a program that outlives its terminal.
TEST(Interrupt, AHangupThatIsIgnoredStaysSo) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        install_interrupt_handler();
        std::raise(SIGHUP);
        {
          const InterruptEnds at_once(true);
          std::raise(SIGHUP);
        }
        let_next_signal_end();
        std::raise(SIGHUP);
        ::_exit(interrupted() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST(Interrupt, TheSecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        install_interrupt_handler();
        std::raise(SIGTERM);
        std::raise(SIGTERM);
        ::_exit(1);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace motet
