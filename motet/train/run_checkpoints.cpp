#include "motet/train/run_checkpoints.h"

#include <algorithm>
#include <charconv>
#include <ranges>
#include <set>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/log.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kState = "state.json";

// The N of step_N; -1 for another name.
int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string(), prefix = "step_";
  int64_t step = -1;
  if (!name.starts_with(prefix)) return -1;
  const auto end = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  return end.ec == std::errc() && end.ptr == name.data() + name.size() ? step : -1;
}

// Gives each of `to` the name and the shape of its own of `from`.
void shape_tensors(const std::vector<NamedTensor>& from, std::vector<NamedTensor>& to) {
  to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    const auto& [name, tensor] = from[i];
    Tensor& copy = to[i].second;
    to[i].first = name;
    if (!copy.defined() || copy.sizes() != tensor.sizes() || copy.scalar_type() != tensor.scalar_type())
      copy = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  }
}

void copy_tensors(const std::vector<NamedTensor>& from, std::vector<NamedTensor>& to) {
  shape_tensors(from, to);
  for (size_t i = 0; i < from.size(); ++i) to[i].second.copy_(from[i].second);
}

// A checkpoint and its state.json; null where an earlier Motet made none, or where it is damaged.
struct Judged {
  StoredCheckpoint stored;
  nlohmann::json state;
};

std::vector<Judged> judged_checkpoints(const fs::path& run) {
  std::vector<Judged> all;
  for (const StoredCheckpoint& stored : stored_checkpoints(run)) {
    all.push_back({stored, nullptr});
    if (!fs::exists(stored.folder / kState)) continue;
    try {
      all.back().state = read_state(stored);
    } catch (const Error& error) {
      log_warn(text(error.what(), "; this checkpoint is not among the best"));
    }
  }
  return all;
}

// Those with a validation loss, the lowest first, of equal ones the earliest.
std::vector<StoredCheckpoint> by_loss(const std::vector<Judged>& checkpoints, Weights weights) {
  const char* const key = weights == Weights::own ? "validation_loss" : "average_validation_loss";
  std::vector<std::pair<double, StoredCheckpoint>> all;
  for (const auto& [stored, state] : checkpoints)
    if (state.is_object() && state.value(key, nlohmann::json()).is_number())
      all.emplace_back(state[key].get<double>(), stored);
  std::ranges::stable_sort(all, {}, [](const auto& one) { return one.first; });
  std::vector<StoredCheckpoint> sorted;
  for (auto& one : all) sorted.push_back(one.second);
  return sorted;
}

}  // namespace

int64_t Snapshot::bytes() const {
  int64_t sum = 0;
  const auto add = [&](const std::vector<NamedTensor>& tensors) {
    for (const auto& [name, tensor] : tensors) sum += static_cast<int64_t>(tensor.nbytes());
  };
  add(model.parameters), add(optimizer);
  if (average) add(average->parameters);
  return sum;
}

void Snapshot::copy_to(Snapshot& copy) const {
  const auto copy_files = [](const ModelFiles& from, ModelFiles& to) {
    to.texts = from.texts;
    copy_tensors(from.parameters, to.parameters);
  };
  copy.state = state;
  copy_files(model, copy.model);
  copy_tensors(optimizer, copy.optimizer);
  if (!average) return copy.average.reset();
  if (!copy.average) copy.average.emplace();
  copy_files(*average, *copy.average);
}

fs::path checkpoint_folder(const fs::path& run, int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step_%08lld", static_cast<long long>(step));
  return run / "checkpoints" / name;
}

std::vector<StoredCheckpoint> stored_checkpoints(const fs::path& run) {
  std::vector<StoredCheckpoint> all;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", none))
    if (const int64_t step = step_of(entry.path()); step >= 0) all.push_back({step, entry.path()});
  std::ranges::sort(all, {}, &StoredCheckpoint::step);
  return all;
}

nlohmann::json read_state(const StoredCheckpoint& stored) {
  const std::string path = (stored.folder / kState).string();
  nlohmann::json state = read_json(path);
  const auto damaged = [&](const auto&... parts) { fail(path, ": is damaged: ", parts...); };
  if (!state.is_object()) damaged("want an object");
  if (state.value("step", nlohmann::json()) != stored.step)
    damaged("step is ", state.value("step", nlohmann::json()).dump(), ", want the ", stored.step, " of its folder");
  if (const nlohmann::json seconds = state.value("seconds", nlohmann::json(0)); !seconds.is_number() || seconds < 0)
    damaged("seconds is ", seconds.dump(), ", want 0 or more");
  return state;
}

fs::path run_of(const fs::path& folder) {
  const fs::path step = folder.filename() == kAverage ? folder.parent_path() : folder, all = step.parent_path();
  return step_of(step) >= 0 && all.filename() == "checkpoints" ? all.parent_path() : fs::path();
}

std::optional<StoredCheckpoint> best_checkpoint(const fs::path& run, Weights weights) {
  const std::vector<StoredCheckpoint> all = by_loss(judged_checkpoints(run), weights);
  return all.empty() ? std::nullopt : std::optional(all.front());
}

CheckpointWriter::CheckpointWriter(fs::path run, int64_t keep_last, int64_t keep_best, bool async)
    : run_(std::move(run)), keep_last_(keep_last), keep_best_(keep_best), async_(async) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void CheckpointWriter::start(std::function<void()> work) {
  thread_ = std::thread([this, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

void CheckpointWriter::make_room(const Snapshot& like) {
  if (!async_) return;
  wait();
  start([this, like] {
    const auto make = [](const std::vector<NamedTensor>& from, std::vector<NamedTensor>& room) {
      shape_tensors(from, room);
      for (const auto& [name, tensor] : room) tensor.zero_();
    };
    try {
      make(like.model.parameters, copy_.model.parameters);
      make(like.optimizer, copy_.optimizer);
      if (like.average) make(like.average->parameters, copy_.average.emplace().parameters);
    } catch (const std::exception&) {
      copy_ = {};  // the next copy makes its own, or says what is missing
    }
  });
}

void CheckpointWriter::save(const Snapshot& snapshot) {
  wait();
  const fs::path folder = checkpoint_folder(run_, snapshot.state.at("step"));
  if (!async_) return write(snapshot, folder);
  snapshot.copy_to(copy_);
  start([this, folder] { write(copy_, folder); });
}

void CheckpointWriter::write(const Snapshot& snapshot, const fs::path& path) const {
  try {
    AtomicFolder folder(path);
    write_model_files(folder.path(), snapshot.model);
    if (snapshot.average) {
      fs::create_directory(folder.path() / kAverage);
      write_model_files(folder.path() / kAverage, *snapshot.average);
    }
    write_tensors(folder.path() / "optimizer.safetensors", snapshot.optimizer);
    write_file_atomic(folder.path() / kState, snapshot.state.dump(1) + "\n");
    folder.commit();
  } catch (const Error& error) {
    fail(path.string(), ": the checkpoint of ", snapshot.bytes(), " bytes is not written: ", error.what());
  }
  remove_old();
}

void CheckpointWriter::remove_old() const {
  if (keep_last_ == 0) return;
  std::set<int64_t> kept;
  const std::vector<StoredCheckpoint> all = stored_checkpoints(run_);
  for (size_t i = 0; i < std::min(all.size(), static_cast<size_t>(keep_last_)); ++i)
    kept.insert(all[all.size() - 1 - i].step);
  if (keep_best_ > 0) {
    const std::vector<Judged> judged = judged_checkpoints(run_);
    for (const Weights weights : {Weights::own, Weights::averaged})
      for (const StoredCheckpoint& best : by_loss(judged, weights) | std::views::take(keep_best_))
        kept.insert(best.step);
  }
  for (const StoredCheckpoint& stored : all) {
    std::error_code error;
    if (!kept.contains(stored.step)) fs::remove_all(stored.folder, error);
    if (error) fail("cannot remove ", quote(stored.folder.string()), ": ", error.message());
  }
}

}  // namespace motet
