#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace motet {

/// Texts under names that all processes of a job share, such as c10d's stores.
class SharedTexts {
 public:
  virtual ~SharedTexts() = default;
  virtual void set(const std::string& name, const std::string& text) = 0;
  /// Waits until there is one.
  virtual std::string get(const std::string& name) = 0;
};

struct WatchOptions {
  int64_t rank = 0, size = 1;
  double beat = 1;      // seconds between two signs of life
  double silence = 60;  // seconds without one, after which a process is gone
  double grace = 5;     // seconds in which this process can take the news before `gone` is called
  /// From another thread, for one that hangs: it is to end the process.
  std::function<void(const std::string& news)> gone;
};

/// Signs of life of the processes of a job, so that one that died, hangs or failed is noticed and named: one of this
/// machine as soon as it is no more, another by its silence or by the word of who noticed it, one that failed by its
/// own words. A thread writes and reads them, another one judges, for the first may wait for a store whose process is
/// gone.
class Watch {
 public:
  /// `texts` is this object's own connection. Waits until all have said who they are; throws what `texts` throws.
  Watch(std::unique_ptr<SharedTexts> texts, WatchOptions);
  ~Watch();
  Watch(const Watch&) = delete;

  void at_step(int64_t step);
  /// Who is gone: "rank 3 (host b, pid 812) is gone since step 40"; "" after so many seconds in which nobody was.
  /// Whoever has had the news is not ended by `gone`. The others hear them too: waits like fail(), so that nobody takes
  /// this process, which ends now, for the one that was gone.
  std::string news(double seconds);
  /// The others hear why this process ends; waits until it is said, and as rank 0, which may hold the texts, until it
  /// is heard, but some seconds at most.
  void fail(const std::string& reason);
  /// This process is done. That of rank 0, which may hold the texts, waits until all are.
  void leave();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace motet
