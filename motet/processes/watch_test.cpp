#include "motet/processes/watch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

// What c10d's stores are, in one process.
struct Texts {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> all;
  bool hangs = false;
};
class Connection : public SharedTexts {
 public:
  explicit Connection(Texts& texts) : texts_(texts) {}
  void set(const std::string& name, const std::string& text) override {
    std::unique_lock lock(texts_.mutex);
    texts_.changed.wait(lock, [&] { return !texts_.hangs; });
    texts_.all[name] = text;
    texts_.changed.notify_all();
  }
  std::string get(const std::string& name) override {
    std::unique_lock lock(texts_.mutex);
    texts_.changed.wait(lock, [&] { return !texts_.hangs && texts_.all.contains(name); });
    return texts_.all[name];
  }

 private:
  Texts& texts_;
};

class WatchTest : public ::testing::Test {
 protected:
  std::unique_ptr<Watch> watch(int64_t rank, int64_t size, double silence = 30, double grace = 30) {
    return std::make_unique<Watch>(std::make_unique<Connection>(texts_),
                                   WatchOptions{.rank = rank,
                                                .size = size,
                                                .beat = 0.02,
                                                .silence = silence,
                                                .grace = grace,
                                                .gone = [this](const std::string& news) { ended_.set_value(news); }});
  }
  // Of another machine, which says this once.
  void says(int64_t rank, const nlohmann::json& what) {
    Connection(texts_).set(text("motet/alive/", rank), what.dump());
  }

  Texts& texts_ = *new Texts;  // threads of a Watch may outlive it
  std::promise<std::string>& ended_ = *new std::promise<std::string>;
};

TEST_F(WatchTest, NobodyIsGoneWhileAllGiveSigns) {
  auto other = std::async(std::launch::async, [&] { return watch(1, 2, 1.5); });  // a busy machine is no silence
  const auto one = watch(0, 2, 1.5);
  const auto two = other.get();
  EXPECT_EQ(one->news(2.5), "");
  EXPECT_EQ(two->news(0), "");
}

TEST_F(WatchTest, OneOfAnotherMachineIsGoneAfterItsSilenceWithTheStepThatItSaid) {
  says(1, {{"host", "b"}, {"pid", 812}, {"begin", 1}, {"step", 0}, {"beat", 1}});
  const auto one = watch(0, 2, 0.5);
  says(1, {{"host", "b"}, {"pid", 812}, {"begin", 1}, {"step", 40}, {"beat", 2}});
  EXPECT_EQ(one->news(10), "rank 1 (host b, pid 812) is gone since step 40");
}

TEST_F(WatchTest, OneThatFailedIsQuoted) {
  auto other = std::async(std::launch::async, [&] { return watch(1, 2); });
  const auto one = watch(0, 2);
  other.get()->fail("out of memory");
  const std::string news = one->news(10);
  EXPECT_TRUE(news.starts_with("rank 1 (host ")) << news;
  EXPECT_TRUE(news.ends_with(" failed: out of memory")) << news;
}

// Long before its silence: its process is no more.
TEST_F(WatchTest, ADeadProcessOfThisMachineIsNoticedAtOnce) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::ifstream file(text("/proc/", child, "/stat"));
  std::string stat, field;
  std::getline(file, stat);
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  for (int i = 3; i <= 22; ++i) fields >> field;
  says(1, {{"host", host}, {"pid", child}, {"begin", std::stoll(field)}, {"step", 3}, {"beat", 1}});
  const auto one = watch(0, 2);
  EXPECT_EQ(one->news(0.5), "");
  ::kill(child, SIGKILL);
  EXPECT_EQ(one->news(10), text("rank 1 (host ", host, ", pid ", child, ") is gone since step 3"));
  ::waitpid(child, nullptr, 0);
}

TEST_F(WatchTest, WhoDoesNotTakeTheNewsIsEnded) {
  says(1, {{"host", "b"}, {"pid", 812}, {"begin", 1}, {"step", 7}, {"beat", 1}});
  const auto one = watch(0, 2, 0.2, 0.1);
  auto ended = ended_.get_future();
  ASSERT_EQ(ended.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_EQ(ended.get(), "rank 1 (host b, pid 812) is gone since step 7");
}

TEST_F(WatchTest, WhenTheTextsHangItIsRankZeroThatIsGone) {
  says(0, {{"host", "a"}, {"pid", 1}, {"begin", 1}, {"step", 5}, {"beat", 1}});
  says(1, {{"host", "b"}, {"pid", 2}, {"begin", 1}, {"step", 5}, {"beat", 1}});
  const auto third = watch(2, 3, 0.5);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  says(0, {{"host", "a"}, {"pid", 1}, {"begin", 1}, {"step", 5}, {"beat", 2}});  // the other one is silent for longer
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  {
    const std::lock_guard lock(texts_.mutex);
    texts_.hangs = true;
  }
  EXPECT_EQ(third->news(10), "rank 0 (host a, pid 1) is gone since step 5");
}

TEST_F(WatchTest, WhoHasLeftIsNotGone) {
  auto other = std::async(std::launch::async, [&] { return watch(1, 2, 1.5); });
  const auto one = watch(0, 2, 1.5);
  auto two = other.get();
  two->leave();
  two.reset();
  EXPECT_EQ(one->news(2.5), "");
}

TEST_F(WatchTest, RankZeroLeavesLast) {
  auto other = std::async(std::launch::async, [&] { return watch(1, 2); });
  const auto one = watch(0, 2);
  auto two = other.get();
  auto first = std::async(std::launch::async, [&] { one->leave(); });
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  two->leave();
  EXPECT_EQ(first.wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

}  // namespace
}  // namespace motet
