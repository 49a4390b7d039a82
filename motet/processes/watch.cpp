#include "motet/processes/watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "motet/core/error.h"

namespace motet {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

// When a process of this machine began, in the kernel's ticks, which tells it from a later one of its number; 0: there
// is none, or it has ended and nobody asked how.
int64_t begin_of(int64_t pid) {
  std::ifstream file(text("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return 0;
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));  // the name may hold anything
  std::string state, field;
  fields >> state;
  for (int i = 4; i <= 22 && fields >> field; ++i) {
  }
  return state == "Z" || state == "X" || field.empty() ? 0 : std::atoll(field.c_str());
}

std::string name_of(int64_t rank) { return text("motet/alive/", rank); }

// What a sign of life says, or null: whoever reaches the texts can write there, and what is none counts as silence.
json sign_of_life(const std::string& text) {
  const json said = json::parse(text, nullptr, false);
  if (!said.is_object()) return nullptr;
  json sign;
  for (const char* name : {"pid", "begin", "step", "beat"}) {
    if (!said.contains(name) || !said[name].is_number_integer()) return nullptr;
    sign[name] = said[name];
  }
  for (const char* name : {"host", "failed", "lost"}) {
    if (!said.contains(name)) continue;
    if (!said[name].is_string()) return nullptr;
    sign[name] = said[name];
  }
  if (!said.contains("left")) return sign;
  if (!said["left"].is_boolean()) return nullptr;
  sign["left"] = said["left"];
  return sign;
}

constexpr double kPatience = 5;  // seconds

}  // namespace

struct Watch::Shared {
  struct Peer {
    json said;
    Clock::time_point heard;
    bool here = false;                                    // its process is visible on this machine
    Clock::time_point missed = Clock::time_point::max();  // when its process was first seen to be no more
    bool left() const { return said.value("left", false); }
    bool failed() const { return said.contains("failed"); }
    bool lost() const { return said.contains("lost") && !failed() && !left(); }
    bool dead() const { return here && begin_of(said["pid"]) != said["begin"]; }
  };

  std::unique_ptr<SharedTexts> texts;
  WatchOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  json own;
  std::vector<Peer> peers;
  Clock::time_point round = Clock::now();  // the last one that ended
  json told;                               // what it said of this process
  Clock::time_point asked = round;         // when the last one began, whether or not it reached the texts
  bool reached = true;                     // the last one did
  std::string news;
  bool taken = false, stop = false;
  bool hurries = false;  // the next one is not to wait for the beat

  void hear(Peer& peer, json said) const {
    peer.said = std::move(said), peer.heard = Clock::now();
    peer.here = peer.here || (peer.said.value("host", "") == own["host"] && peer.said["begin"] > 0 &&
                              begin_of(peer.said["pid"]) == peer.said["begin"]);
  }

  // One exchange with the others; the lock is not held while the texts are waited for.
  void exchange(std::unique_lock<std::mutex>& lock) {
    own["beat"] = own["beat"].get<int64_t>() + 1;
    const json mine = own;
    const Clock::time_point now = Clock::now();
    lock.unlock();
    std::vector<json> said(peers.size());
    bool failed = false;
    try {
      texts->set(name_of(options.rank), mine.dump());
      for (size_t r = 0; r < said.size(); ++r) said[r] = sign_of_life(texts->get(name_of(static_cast<int64_t>(r))));
    } catch (const std::exception&) {
      failed = true;  // the texts cannot be reached: judge() sees how long
    }
    lock.lock();
    reached = !failed, asked = now;
    if (failed) return changed.notify_all();
    round = Clock::now(), told = mine;
    for (size_t r = 0; r < said.size(); ++r)
      if (!said[r].is_null() && peers[r].said != said[r]) hear(peers[r], std::move(said[r]));
    changed.notify_all();
  }

  void pulse() {
    std::unique_lock lock(mutex);
    while (!stop) {
      hurries = false;
      exchange(lock);
      changed.wait_for(lock, seconds(options.beat), [&] { return stop || hurries; });
    }
  }

  std::string named(size_t rank) const {
    const json& said = peers[rank].said;
    return text("rank ", rank, " (host ", said.value("host", "?"), ", pid ", said.value("pid", int64_t{0}), ")");
  }

  // Whether a process of this machine is no more, and has not said why: what it last said was read after its end, as
  // far as the texts can be reached.
  bool dead(Peer& peer) {
    if (!peer.dead()) return false;
    const Clock::time_point now = Clock::now();
    if (peer.missed > now) peer.missed = now, hurries = true, changed.notify_all();
    return asked >= peer.missed || now - peer.missed > seconds(kPatience);
  }

  // "" when nobody is gone. Who has noticed it may have ended since, so its word comes before its end.
  std::string gone() {
    for (const Peer& peer : peers)
      if (peer.lost()) return peer.said["lost"];
    const int64_t here = own["step"];  // all are at the same step, and what others said of it is some seconds old
    const auto since = [&](size_t r) {
      return text(" is gone since step ", std::max(here, peers[r].said.value("step", here)));
    };
    for (size_t r = 0; r < peers.size(); ++r) {
      Peer& peer = peers[r];
      if (static_cast<int64_t>(r) == options.rank) continue;
      if (peer.failed()) return named(r) + " failed: " + peer.said["failed"].get<std::string>();
      if (peer.left()) continue;
      if (dead(peer) || round - peer.heard > seconds(options.silence)) return named(r) + since(r);
    }
    // The texts themselves: rank 0 may hold them, and then all are silent when it hangs.
    if (peers[0].left() || Clock::now() - round <= seconds(options.silence)) return "";
    return options.rank == 0 ? "the store that all processes share" + since(0) : named(0) + since(0);
  }

  // Waits until this process's word is in the texts, and as rank 0, which may hold them, until everyone who needs it
  // has read it; some seconds at most.
  void until_heard(std::unique_lock<std::mutex>& lock, const char* word) {
    const Clock::time_point begin = Clock::now();
    const double patience = std::max(kPatience, 3 * options.beat);
    const auto beat = [](const Peer& peer) { return peer.said.value("beat", int64_t{0}); };
    const auto knows = [&](const Peer& p) {
      return p.left() || p.failed() || p.lost() || p.dead() || round - p.heard > seconds(options.silence);
    };
    std::vector<int64_t> heard;  // beats at which the others had read it
    changed.wait_for(lock, seconds(patience), [&] {
      if (!told.contains(word)) return (!reached && asked >= begin) || Clock::now() - round > seconds(options.silence);
      if (options.rank != 0) return true;
      if (heard.empty())
        for (const Peer& peer : peers) heard.push_back(beat(peer) + 2);
      for (size_t r = 1; r < heard.size(); ++r)
        if (beat(peers[r]) < heard[r] && !knows(peers[r])) return false;
      return true;
    });
  }

  void judge() {
    constexpr double kLook = 0.2, kAsleep = 2;
    std::unique_lock lock(mutex);
    Clock::time_point last = Clock::now();
    while (!stop && news.empty()) {
      changed.wait_for(lock, seconds(kLook));
      const Clock::time_point now = Clock::now();
      if (now - last > seconds(kAsleep)) {  // this process was stopped: it has not heard anyone meanwhile
        round = now;
        for (Peer& peer : peers) peer.heard = now;
      }
      last = now;
      if (!stop) news = gone();
    }
    if (stop) return;
    if (!own.contains("left")) own["lost"] = news;
    hurries = true;
    changed.notify_all();
    changed.wait_for(lock, seconds(options.grace), [&] { return taken || stop; });
    if (taken || stop) return;
    const std::string said = news;
    lock.unlock();
    options.gone(said);
  }
};

Watch::Watch(std::unique_ptr<SharedTexts> texts, WatchOptions options) : shared_(std::make_shared<Shared>()) {
  Shared& s = *shared_;
  s.texts = std::move(texts), s.options = std::move(options);
  const int64_t pid = ::getpid();
  s.own = {{"host", host_name()}, {"pid", pid}, {"begin", begin_of(pid)}, {"step", 0}, {"beat", 0}};
  s.texts->set(name_of(s.options.rank), s.own.dump());
  for (int64_t r = 0; r < s.options.size; ++r) {
    Shared::Peer peer{.said = json::object(), .heard = Clock::now()};
    if (json said = sign_of_life(s.texts->get(name_of(r))); !said.is_null()) s.hear(peer, std::move(said));
    s.peers.push_back(std::move(peer));
  }
  for (const auto loop : {&Shared::pulse, &Shared::judge})
    std::thread([own = shared_, loop] { ((*own).*loop)(); }).detach();
}

Watch::~Watch() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
}

void Watch::at_step(int64_t step) {
  const std::lock_guard lock(shared_->mutex);
  shared_->own["step"] = step;
}

std::string Watch::news(double wait) {
  Shared& s = *shared_;
  std::unique_lock lock(s.mutex);
  s.changed.wait_for(lock, seconds(wait), [&] { return !s.news.empty(); });
  s.taken = !s.news.empty();
  s.changed.notify_all();
  if (s.taken) s.until_heard(lock, "lost");
  return s.news;
}

void Watch::fail(const std::string& reason) {
  Shared& s = *shared_;
  std::unique_lock lock(s.mutex);
  s.own["failed"] = reason, s.taken = s.hurries = true;
  s.changed.notify_all();
  s.until_heard(lock, "failed");
}

void Watch::leave() {
  Shared& s = *shared_;
  std::unique_lock lock(s.mutex);
  s.own["left"] = s.taken = s.hurries = true;
  s.changed.notify_all();
  const auto left = [](const Shared::Peer& peer) { return peer.left(); };
  s.changed.wait_for(lock, seconds(s.options.silence), [&] {
    return !s.news.empty() || (s.told.contains("left") && (s.options.rank != 0 || std::ranges::all_of(s.peers, left)));
  });
}

}  // namespace motet
