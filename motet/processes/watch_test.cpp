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

// A process of this machine that does nothing.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::pause();
    ::_exit(0);
  }
  ~Child() { end(), ::waitpid(pid_, nullptr, 0); }
  Child(const Child&) = delete;
  void end() const { ::kill(pid_, SIGKILL); }
  nlohmann::json said(int64_t step) const {
    std::ifstream file(text("/proc/", pid_, "/stat"));
    std::string stat, field;
    std::getline(file, stat);
    std::istringstream fields(stat.substr(stat.rfind(')') + 1));
    for (int i = 3; i <= 22; ++i) fields >> field;
    return {{"host", host()}, {"pid", pid_}, {"begin", std::stoll(field)}, {"step", step}, {"beat", 1}};
  }
  std::string named(int64_t rank) const { return text("rank ", rank, " (host ", host(), ", pid ", pid_, ")"); }

 private:
  static std::string host() {
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    return name;
  }
  pid_t pid_;
};

class WatchTest : public ::testing::Test {
 protected:
  std::unique_ptr<Watch> watch(int64_t rank, int64_t size, double silence = 30, double grace = 30) {
    return std::make_unique<Watch>(std::make_unique<Connection>(texts_),
                                   WatchOptions{.rank = rank,
                                                .size = size,
                                                .beat = beat_,
                                                .silence = silence,
                                                .grace = grace,
                                                .gone = [this](const std::string& news) { ended_.set_value(news); }});
  }
  // Of another machine, which says this once.
  void says(int64_t rank, const nlohmann::json& what) {
    Connection(texts_).set(text("motet/alive/", rank), what.dump());
  }

  double beat_ = 0.02;
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
  Child child;
  says(1, child.said(3));
  const auto one = watch(0, 2);
  EXPECT_EQ(one->news(0.5), "");
  child.end();
  EXPECT_EQ(one->news(10), child.named(1) + " is gone since step 3");
}

TEST_F(WatchTest, WhoNoticedItIsBelieved) {
  const std::string news = "rank 2 (host b, pid 813) is gone since step 9";
  nlohmann::json other = {{"host", "b"}, {"pid", 812}, {"begin", 1}, {"step", 9}, {"beat", 1}};
  says(1, other), says(2, other);
  const auto one = watch(0, 3);
  other["lost"] = news;
  says(1, other);
  EXPECT_EQ(one->news(10), news);
}

// Rank 0 ended because of rank 2 before this process looked: both are gone.
TEST_F(WatchTest, TheWordOfADeadProcessComesBeforeItsEnd) {
  const std::string news = "rank 2 (host b, pid 813) is gone since step 9";
  Child child;
  nlohmann::json first = child.said(9);
  says(0, first), says(2, {{"host", "b"}, {"pid", 813}, {"begin", 1}, {"step", 9}, {"beat", 1}});
  const auto one = watch(1, 3);
  {
    const std::lock_guard lock(texts_.mutex);
    first["lost"] = news;
    texts_.all["motet/alive/0"] = first.dump();
    child.end();
  }
  EXPECT_EQ(one->news(10), news);
}

// The word that it is done lies in the texts, and is not read yet.
TEST_F(WatchTest, WhoseProcessEndedAfterItsLastWordIsNotGone) {
  Child child;
  nlohmann::json other = child.said(9);
  says(1, other);
  beat_ = 2;
  const auto one = watch(0, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it has read the first word
  other["left"] = true;
  says(1, other);
  child.end();
  EXPECT_EQ(one->news(3), "");
}

// Whoever reaches the texts can write there.
TEST_F(WatchTest, WhatIsNoSignOfLifeCountsAsSilence) {
  const nlohmann::json other = {{"host", "b"}, {"pid", 812}, {"begin", 1}, {"step", 9}, {"beat", 1}};
  std::vector<std::string> none = {"", "{", "[]", "{}", "null"};
  const std::map<std::string, nlohmann::json> wrong = {{"host", 1},   {"pid", "x"},       {"begin", nullptr},
                                                       {"step", 0.5}, {"beat", true},     {"left", "x"},
                                                       {"lost", 1},   {"failed", nullptr}};
  for (const auto& [name, value] : wrong) {
    nlohmann::json changed = other;
    changed[name] = value;
    none.push_back(changed.dump());
  }
  for (const std::string& text : none) {
    says(1, other);
    const auto one = watch(0, 2, 0.2);
    Connection(texts_).set("motet/alive/1", text);
    EXPECT_EQ(one->news(10), "rank 1 (host b, pid 812) is gone since step 9") << text;
  }
}

TEST_F(WatchTest, TheFirstSignOfLifeIsWaitedForBehindWhatIsNone) {
  Connection(texts_).set("motet/alive/1", "x");
  const auto one = watch(0, 2, 5);
  Child child;
  says(1, child.said(3));
  EXPECT_EQ(one->news(0.5), "");
  child.end();
  EXPECT_EQ(one->news(4), child.named(1) + " is gone since step 3");
}

// It may take another one that is done for one that died.
TEST_F(WatchTest, WhoHasLeftIsNotBelieved) {
  nlohmann::json other = {{"host", "b"}, {"pid", 812}, {"begin", 1}, {"step", 9}, {"beat", 1}};
  says(1, other), says(2, other);
  const auto one = watch(0, 3);
  other["left"] = true, other["lost"] = "rank 2 (host b, pid 812) is gone since step 9";
  says(1, other);
  EXPECT_EQ(one->news(1), "");
}

TEST_F(WatchTest, RankZeroHasTheNewsWhenTheOthersHaveHeardThem) {
  nlohmann::json other = {{"host", "b"}, {"pid", 812}, {"begin", 1}, {"step", 0}, {"beat", 1}};
  says(1, other), says(2, other);
  const auto one = watch(0, 3);
  nlohmann::json failed = other;
  failed["failed"] = "out of memory";
  says(2, failed);
  auto news = std::async(std::launch::async, [&] { return one->news(10); });
  EXPECT_EQ(news.wait_for(std::chrono::milliseconds(800)), std::future_status::timeout);
  other["beat"] = 3;
  says(1, other);
  ASSERT_EQ(news.wait_for(std::chrono::milliseconds(3000)), std::future_status::ready);  // not the end of its patience
  EXPECT_EQ(news.get(), "rank 2 (host b, pid 812) failed: out of memory");
}

TEST_F(WatchTest, RankZeroWaitsForNobodyWhoIsGone) {
  Child child;
  says(1, child.said(3));
  const auto one = watch(0, 2);
  child.end();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(one->news(10), child.named(1) + " is gone since step 3");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));  // its patience has 5
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
