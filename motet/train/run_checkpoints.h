#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "motet/checkpoints/model_folder.h"

// The checkpoints of a run: RUN/checkpoints/step_N, a model folder with optimizer.safetensors and state.json, from
// which training goes on as if it had never stopped.
namespace motet {

/// The folder of the averaged weights in a checkpoint.
inline constexpr const char* kAverage = "average";

/// What one holds.
struct Snapshot {
  nlohmann::json state;                    // state.json; "step", and the losses of run_state (resume.h)
  ModelFiles model;                        // as every model folder
  std::vector<NamedTensor> optimizer;      // Trainer::tensors()
  std::optional<ModelFiles> average = {};  // a model folder of its own

  int64_t bytes() const;  // of all tensors
  /// Makes `copy` the same on the host, apart from a run that goes on, in the memory that it has where that fits.
  void copy_to(Snapshot& copy) const;
};

struct StoredCheckpoint {
  int64_t step = 0;
  std::filesystem::path folder;
};
/// RUN/checkpoints/step_N, whether it is there or not.
std::filesystem::path checkpoint_folder(const std::filesystem::path& run, int64_t step);
/// By step; empty when the folder holds none.
std::vector<StoredCheckpoint> stored_checkpoints(const std::filesystem::path& run);
/// Its state.json. Throws Error for one that is damaged: that is of another step than its folder's name says, too.
nlohmann::json read_state(const StoredCheckpoint&);
/// The run that the folder of a checkpoint, or of its averaged weights, belongs to; "" for any other folder.
std::filesystem::path run_of(const std::filesystem::path& folder);
/// Which weights of a checkpoint: as they are, or their average.
enum class Weights { own, averaged };
/// That of the lowest validation loss; none when no evaluation of such weights fell on one that is there. One whose
/// state.json is damaged is passed over with a warning.
std::optional<StoredCheckpoint> best_checkpoint(const std::filesystem::path& run, Weights = Weights::own);

class CheckpointWriter {
 public:
  /// keep_last 0 keeps all; keep_best counts those of the lowest loss, and of averaged weights again. `async`: save()
  /// copies, and a thread writes while the run goes on; the copy's memory is kept for the next one, for new memory
  /// takes many times as long to fill.
  CheckpointWriter(std::filesystem::path run, int64_t keep_last, int64_t keep_best, bool async);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;

  /// Of an asynchronous one: a thread makes the memory of copies of such a snapshot, of which it reads sizes alone. New
  /// memory takes many times as long to fill as memory that was used.
  void make_room(const Snapshot&);
  /// Writes a checkpoint, and when it stands under its name removes those that are no longer kept. Throws Error naming
  /// the path and the bytes that it takes (a full disk): the checkpoints before stay; so does a failure of the thread
  /// before.
  void save(const Snapshot&);
  /// Until the thread is done. Throws its failure.
  void wait();

 private:
  void start(std::function<void()> work);
  void write(const Snapshot&, const std::filesystem::path& folder) const;
  void remove_old() const;

  std::filesystem::path run_;
  int64_t keep_last_, keep_best_;
  bool async_;
  Snapshot copy_;  // the thread's, until wait()
  std::thread thread_;
  std::exception_ptr failure_;
};

}  // namespace motet
