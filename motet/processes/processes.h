#pragma once
#include <memory>
#include <nlohmann/json.hpp>

#include "motet/core/error.h"
#include "motet/core/place.h"
#include "motet/ops/torch.h"

namespace c10d {
class ProcessGroup;
}

namespace motet {

/// Whether processes with a GPU each can exchange what lies there; all others go by Gloo.
bool has_nccl();

/// How long processes wait for each other, in seconds.
struct Patience {
  int64_t start = 300;   // until all are there
  int64_t silence = 60;  // of one that gives no sign of life
};

/// A failure that another process tells, or has told: this one ends with its exit code and no words.
class ToldElsewhere : public Error {
 public:
  explicit ToldElsewhere(int code) : Error("told by another process"), code_(code) {}
  int exit_code() const override { return code_; }

 private:
  int code_;
};

/// The processes that do one piece of work together: each calls the same functions in the same order. PyTorch's c10d
/// under it: Gloo for what lies on the CPU, NCCL for a GPU where this build has it. One process alone is a special
/// case: its sums are what they are.
class Processes {
 public:
  Processes();  // this one alone
  /// Waits for the others. Throws Error when they do not come in time, when the port is taken, and for CUDA in a build
  /// without NCCL.
  Processes(const Place&, at::Device, const Patience&);
  ~Processes();
  Processes(const Processes&) = delete;

  int64_t rank() const { return place_.rank; }
  int64_t size() const { return place_.size; }
  bool alone() const { return size() == 1; }
  bool first() const { return rank() == 0; }  // who prints and writes
  const Place& place() const { return place_; }
  /// This process's part of `count` things in their order: those from `first` to before `second`.
  std::pair<int64_t, int64_t> part(int64_t count) const {
    return {count * rank() / size(), count * (rank() + 1) / size()};
  }

  /// Adds the numbers of all, in place.
  void sum(const Tensor&) const;
  /// Those of all, by rank: `own` [N] of each -> [size, N].
  Tensor everyones(const Tensor& own) const;
  /// Likewise of any text; waits for all.
  std::vector<nlohmann::json> everyones(const nlohmann::json& own) const;
  c10d::ProcessGroup& group() const;  // of more than one

  /// What the others hear of this one, should it be gone.
  void at_step(int64_t step);
  /// After a call that failed: "rank 3 (host b, pid 812) is gone since step 40" and the advice, when it was because of
  /// another process; "" when all are there.
  std::string lost() const;
  /// What else is said then, by the one process that says it: "; to go on: ...".
  void set_advice(const std::string& advice);
  /// Whether this process is the one to say it: the first one, or the next when that is gone.
  bool tells(const std::string& news) const;
  /// The others hear that this one failed.
  void fail(const std::string& reason) const;
  /// The work is done, everywhere: nobody is missed any more.
  void leave();

 private:
  struct Connections;
  Place place_;
  std::unique_ptr<Connections> connections_;
};

/// The mean over processes of the gradients of parameters, made while a backward pass runs, 25 MB at a time
/// (c10d::Reducer, as DistributedDataParallel has it).
class MeanGradients {
 public:
  /// Nothing happens of a process alone. Parameters are as many and as large in all processes.
  MeanGradients(const Processes&, std::vector<Tensor> parameters);
  ~MeanGradients();
  /// Before the backward pass after which the gradients, accumulated ones too, are the means: the last one of a step.
  /// It has to reach every parameter.
  void prepare();

 private:
  struct Reducer;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace motet
