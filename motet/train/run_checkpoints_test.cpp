#include "motet/train/run_checkpoints.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"
#include "motet/formats/safetensors.h"

// A file system that fails at one call: these definitions stand before those of libc for the whole program.
namespace {

std::atomic<int> calls_before_failure = -1;  // below 0: none fails

bool call_fails() { return calls_before_failure >= 0 && calls_before_failure-- == 0; }

template <class Function>
Function* libc(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

int failed() {
  errno = ENOSPC;
  return -1;
}

}  // namespace

extern "C" {
int fsync(int file) {
  static const auto real = libc<int(int)>("fsync");
  return call_fails() ? failed() : real(file);
}
int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = libc<int(const char*, mode_t)>("mkdir");
  return call_fails() ? failed() : real(path, mode);
}
int rename(const char* from, const char* to) noexcept {
  static const auto real = libc<int(const char*, const char*)>("rename");
  return call_fails() ? failed() : real(from, to);
}
int renameat2(int folder, const char* from, int other, const char* to, unsigned flags) noexcept {
  static const auto real = libc<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return call_fails() ? failed() : real(folder, from, other, to, flags);
}
ssize_t write(int file, const void* bytes, size_t count) {
  static const auto real = libc<ssize_t(int, const void*, size_t)>("write");
  return call_fails() ? failed() : real(file, bytes, count);
}
}

namespace motet {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::TemporaryFolder;

Snapshot snapshot(int64_t step, std::optional<double> loss = std::nullopt, std::optional<double> averaged = {}) {
  const Tensor values = at::full({3, 2}, static_cast<double>(step), at::kFloat);
  nlohmann::json state{{"step", step}, {"validation_loss", loss ? nlohmann::json(*loss) : nlohmann::json()}};
  if (averaged) state["average_validation_loss"] = *averaged;
  return {.state = state,
          .model = {.texts = {{"config.json", "{}"}}, .parameters = {{"weight", values}}},
          .optimizer = {{"exp_avg.weight", values + 0.5}}};
}

// The number in a file of one tensor.
double number_in(const fs::path& file) {
  const SafetensorsFile stored(file.string());
  float x;
  std::memcpy(&x, stored.tensors().at(0).bytes.data(), sizeof x);
  return static_cast<double>(x);
}

void expect_whole(const StoredCheckpoint& stored) {
  const auto step = static_cast<double>(stored.step);
  EXPECT_EQ(read_json((stored.folder / "state.json").string())["step"], stored.step);
  EXPECT_EQ(read_file(stored.folder / "config.json"), "{}");
  EXPECT_EQ(number_in(stored.folder / "model.safetensors"), step);
  EXPECT_EQ(number_in(stored.folder / "optimizer.safetensors"), step + 0.5);
}

std::vector<int64_t> steps_in(const fs::path& run) {
  std::vector<int64_t> steps;
  for (const StoredCheckpoint& stored : stored_checkpoints(run)) steps.push_back(stored.step);
  return steps;
}

size_t entries_of(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(CheckpointWriter, WhicheverCallFailsOneWholeCheckpointIsThere) {
  bool failed = true;
  int call = 0, kept_the_old = 0;
  for (; failed; ++call) {
    const TemporaryFolder run;
    CheckpointWriter writer(run.path(), 1, 0, false);
    writer.save(snapshot(1));
    calls_before_failure = call;
    std::string message;
    try {
      writer.save(snapshot(2));
    } catch (const Error& error) {
      message = error.what();
    }
    failed = calls_before_failure < 0;
    calls_before_failure = -1;
    const std::vector<StoredCheckpoint> all = stored_checkpoints(run.path());
    ASSERT_FALSE(all.empty()) << call;
    for (const StoredCheckpoint& stored : all) expect_whole(stored);
    EXPECT_EQ(entries_of(run.path() / "checkpoints"), all.size()) << "nothing half written stays, call " << call;
    EXPECT_EQ(message.empty(), !failed) << call;
    if (failed) {
      EXPECT_NE(message.find("step_00000002"), std::string::npos) << message;
      EXPECT_NE(message.find("the checkpoint of 48 bytes"), std::string::npos) << message;
    }
    kept_the_old += steps_in(run.path()) == std::vector<int64_t>{1};
    writer.save(snapshot(3));
    EXPECT_EQ(steps_in(run.path()), std::vector<int64_t>{3}) << call;
  }
  EXPECT_GT(kept_the_old, 10);
}

TEST(CheckpointWriter, TheLastAndTheBestStay) {
  const TemporaryFolder run;
  CheckpointWriter writer(run.path(), 2, 1, false);
  EXPECT_FALSE(best_checkpoint(run.path()));
  const auto save = [&](int64_t step, std::optional<double> loss) {
    writer.save(snapshot(step, loss));
    return steps_in(run.path());
  };
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(save(10, 3.0), (Steps{10}));
  EXPECT_EQ(save(20, 2.0), (Steps{10, 20}));
  EXPECT_EQ(save(30, std::nullopt), (Steps{20, 30}));
  EXPECT_EQ(save(40, 2.5), (Steps{20, 30, 40}));
  EXPECT_EQ(save(50, 2.0), (Steps{20, 40, 50}));  // no better than the one of step 20
  EXPECT_EQ(best_checkpoint(run.path())->step, 20);
  EXPECT_EQ(save(60, 1.0), (Steps{50, 60}));
  EXPECT_EQ(best_checkpoint(run.path())->folder.filename(), "step_00000060");
  for (const StoredCheckpoint& stored : stored_checkpoints(run.path())) expect_whole(stored);
  CheckpointWriter all(run.path(), 0, 0, false);
  all.save(snapshot(70));
  EXPECT_EQ(steps_in(run.path()), (Steps{50, 60, 70}));
}

TEST(CheckpointWriter, AveragedWeightsHaveABestOfTheirOwn) {
  const TemporaryFolder run;
  CheckpointWriter writer(run.path(), 1, 1, false);
  writer.save(snapshot(10, 2.0, 1.9));
  EXPECT_EQ(best_checkpoint(run.path(), Weights::averaged)->step, 10);
  writer.save(snapshot(20, 1.0, 1.8));
  writer.save(snapshot(30, 3.0, 0.5));
  writer.save(snapshot(40, 4.0, 0.9));
  EXPECT_EQ(steps_in(run.path()), (std::vector<int64_t>{20, 30, 40}));
  EXPECT_EQ(best_checkpoint(run.path())->step, 20);
  EXPECT_EQ(best_checkpoint(run.path(), Weights::averaged)->step, 30);
}

TEST(CheckpointWriter, ADamagedStateIsPassedOver) {
  const TemporaryFolder run;
  CheckpointWriter writer(run.path(), 2, 1, false);
  for (const int64_t step : {10, 20, 30}) writer.save(snapshot(step, static_cast<double>(step)));
  for (const char* damaged : {"{\"validation_loss\": 1", "[1]", "{\"validation_loss\": \"1\"}"}) {
    write_file_atomic(run.path() / "checkpoints/step_00000010/state.json", damaged);
    EXPECT_EQ(best_checkpoint(run.path())->step, 20) << damaged;
  }
  writer.save(snapshot(40, 40.0));
  EXPECT_EQ(steps_in(run.path()), (std::vector<int64_t>{20, 30, 40})) << "what is damaged is not kept as the best";
}

TEST(CheckpointWriter, AStateOfAnotherStepIsDamaged) {
  const TemporaryFolder run;
  CheckpointWriter(run.path(), 0, 0, false).save(snapshot(40));
  const StoredCheckpoint stored = stored_checkpoints(run.path()).at(0);
  EXPECT_EQ(read_state(stored).at("step"), 40);
  const auto said = [&](const char* state) {
    write_file_atomic(stored.folder / "state.json", state);
    const std::string message = message_of<Error>([&] { read_state(stored); });
    return message.substr(message.find("is damaged"));
  };
  EXPECT_EQ(said(R"({"step": -1})"), "is damaged: step is -1, want the 40 of its folder");
  EXPECT_EQ(said(R"({"step": "40"})"), "is damaged: step is \"40\", want the 40 of its folder");
  EXPECT_EQ(said("{}"), "is damaged: step is null, want the 40 of its folder");
  EXPECT_EQ(said("[]"), "is damaged: want an object");
  EXPECT_EQ(said(R"({"step": 40, "seconds": -5})"), "is damaged: seconds is -5, want 0 or more");
  EXPECT_EQ(said(R"({"step": 40, "seconds": null})"), "is damaged: seconds is null, want 0 or more");
}

TEST(CheckpointWriter, AnAsynchronousOneIsOfTheTimeWhenItWasAskedFor) {
  const TemporaryFolder run;
  CheckpointWriter writer(run.path(), 2, 1, true);
  Snapshot one = snapshot(1);
  writer.save(one);
  one.model.parameters[0].second.fill_(9), one.optimizer[0].second.fill_(9);
  writer.wait();
  expect_whole(stored_checkpoints(run.path()).at(0));
}

TEST(Snapshot, ACopyIsApartAndKeepsItsMemory) {
  Snapshot copy, one = snapshot(1);
  one.average = ModelFiles{.texts = {}, .parameters = {{"weight", at::ones({4})}}};
  one.copy_to(copy);
  const auto numbers = [&](const Snapshot& s) { return s.model.parameters[0].second.const_data_ptr(); };
  const void* const memory = numbers(copy);
  EXPECT_NE(memory, numbers(one));
  one.model.parameters[0].second.fill_(9);
  EXPECT_TRUE(copy.model.parameters[0].second.eq(1).all().item<bool>());
  EXPECT_EQ(copy.average->parameters[0].first, "weight");

  snapshot(2).copy_to(copy);
  EXPECT_EQ(numbers(copy), memory);
  EXPECT_EQ(copy.state["step"], 2);
  EXPECT_TRUE(copy.optimizer[0].second.eq(2.5).all().item<bool>());
  EXPECT_FALSE(copy.average);

  Snapshot other = snapshot(3);
  other.model.parameters = {{"more", at::full({5}, 3.0, at::kDouble)}, {"bias", at::zeros({6})}};
  other.copy_to(copy);
  ASSERT_EQ(copy.model.parameters.size(), 2u);
  EXPECT_EQ(copy.model.parameters[0].first, "more");
  EXPECT_TRUE(at::equal(copy.model.parameters[0].second, at::full({5}, 3.0, at::kDouble)));
  other.model.parameters[0].second = at::full({1}, 4.0, at::kDouble);  // which would fill one of 5 too
  other.copy_to(copy);
  EXPECT_TRUE(at::equal(copy.model.parameters[0].second, at::full({1}, 4.0, at::kDouble)));
}

TEST(CheckpointWriter, RoomIsMadeForCopiesAndNothingIsWritten) {
  const TemporaryFolder run;
  CheckpointWriter writer(run.path(), 2, 1, true);
  Snapshot one = snapshot(1);
  writer.make_room(one);
  writer.wait();
  EXPECT_TRUE(stored_checkpoints(run.path()).empty());
  writer.save(one);
  one.model.parameters[0].second.fill_(9), one.optimizer[0].second.fill_(9);
  writer.wait();
  expect_whole(stored_checkpoints(run.path()).at(0));
}

TEST(CheckpointWriter, AFailureOfTheThreadEndsTheNextCall) {
  const TemporaryFolder run;
  CheckpointWriter writer(run.path(), 2, 1, true);
  writer.save(snapshot(1));
  writer.wait();
  calls_before_failure = 0;
  writer.save(snapshot(2));
  const std::string message = message_of<Error>([&] { writer.save(snapshot(3)); });
  EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
  EXPECT_EQ(steps_in(run.path()), std::vector<int64_t>{1});
  writer.save(snapshot(3));  // the failure was told once
  writer.wait();
  EXPECT_EQ(steps_in(run.path()), (std::vector<int64_t>{1, 3}));
}

}  // namespace
}  // namespace motet
