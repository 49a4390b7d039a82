#include "motet/train/resume.h"

#include <fstream>
#include <map>

#include "motet/checkpoints/tensors.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/log.h"
#include "motet/formats/json.h"
#include "motet/formats/toml.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kStateVersion = 1;  // of state.json

// What changes nothing that a step computes, or only its last bits.
const std::set<std::string> kFree{
    "train.steps",  // check_budget
    "train.tokens",    "train.minutes",
    "data.text",  // its contents are compared
    "train.device",    "train.micro_batch_size", "train.eval_every",       "train.checkpoint_every",
    "train.keep_last", "train.keep_best",        "train.async_checkpoint", "train.diagnose_every",
    "train.timeout",   "train.start_timeout",    "train.shard_optimizer"};

// "section.key" -> value.
void flatten(const json& node, const std::string& path, std::map<std::string, json>& out) {
  for (const auto& item : node.items()) {
    const std::string key = path.empty() ? item.key() : path + "." + item.key();
    item.value().is_object() ? flatten(item.value(), key, out) : (void)(out[key] = item.value());
  }
}

std::map<std::string, json> flat(const json& config) {
  std::map<std::string, json> out;
  flatten(config, "", out);
  return out;
}

[[noreturn]] void changed(const std::string& command, const std::string& what, const json& was, const json& is) {
  fail_usage(command, ": --resume: ", what, " was ", was.dump(), " and is ", is.dump(), ", want it as it was");
}

void check_budget(const json& was, const json& is) {
  for (const char* unit : {"steps", "tokens", "minutes"}) {
    const double before = was.at("train").at(unit), now = is.at("train").at(unit);
    if (before == 0) continue;
    if (now == 0)
      fail_usage("train: --resume: the budget was train.", unit, " = ", before, ", want it in the same unit");
    if (now < before)
      fail_usage("train: --resume: train.", unit, " was ", before, " and is ", now, ", want at least that");
  }
}

}  // namespace

ResumePoint open_run(const fs::path& run) {
  if (!fs::exists(run / "metrics.jsonl")) fail_usage("--resume: ", run.string(), " holds no run");
  const std::vector<StoredCheckpoint> all = stored_checkpoints(run);
  if (all.empty())
    fail("--resume: ", run.string(),
         ": has no checkpoint yet, want the command that began it with --resume auto, which begins again");
  ResumePoint point{.run = run, .checkpoint = all.back().folder, .state = {}, .config = {}};
  const fs::path state = point.checkpoint / "state.json";
  if (!fs::exists(state))
    fail("--resume: ", point.checkpoint.string(),
         ": holds weights alone, as earlier versions wrote them; want --init with it");
  point.state = read_state(all.back());
  if (point.state.value("version", 0) != kStateVersion)
    fail(state.string(), ": is of another version of Motet, want version ", kStateVersion);
  point.config = without_idle_keys(read_toml((run / "config.toml").string()));
  return point;
}

json run_state(const Trainer& trainer, const RunConfig& run, const TextData& data,
               const std::vector<std::string>& frozen, const std::optional<EvalRecord>& evaluation) {
  json state = trainer.state();
  state["version"] = kStateVersion;
  state["validation_loss"] = evaluation ? json(evaluation->compared) : json();
  if (evaluation && evaluation->average) state["average_validation_loss"] = evaluation->average_compared;
  state["run"] = run.resolved();
  state["freeze"] = frozen;
  state["data"] = data.hashes;
  return state;
}

// A key that was not there is of a later version of Motet, and has its default. Another mechanism has other options:
// it is what is told.
void check_unchanged(const std::string& command, const json& was, const json& is, const std::set<std::string>& free) {
  const auto before = flat(was), now = flat(is);
  for (const bool mechanism : {true, false})
    for (const auto& [key, value] : before) {
      if (free.contains(key) || key.ends_with(".mechanism") != mechanism) continue;
      const auto found = now.find(key);
      if (found == now.end() || found->second != value)
        changed(command, key, value, found == now.end() ? json() : found->second);
    }
}

void check_same_run(const ResumePoint& point, const RunConfig& run) {
  const json was = without_idle_keys(point.state.at("run")), is = run.resolved();
  check_unchanged("train", was, is, kFree);
  check_budget(was, is);
}

void check_same_frozen(const ResumePoint& point, const std::vector<std::string>& frozen) {
  if (point.state.at("freeze") != frozen) changed("train", "--freeze", point.state.at("freeze"), frozen);
}

void check_same_data(const json& hashes, const TextData& data) {
  for (const auto& part : hashes.items())
    if (data.hashes.value(part.key(), "") != part.value())
      fail_usage(data.name, ": is not the data of the run (", part.key(), ")");
}

void restore(Trainer& trainer, const ResumePoint& point) {
  at::NoGradGuard no_grad;
  const Tensors stored = safetensors_tensors((point.checkpoint / "optimizer.safetensors").string());
  const auto own = trainer.tensors();
  for (const auto& [name, tensor] : own) {
    const auto found = stored.all.find(name);
    if (found == stored.all.end()) fail(stored.where, ": tensor ", name, " is missing");
    if (at::IntArrayRef(found->second.shape) != tensor.sizes() || found->second.dtype != tensor.scalar_type())
      fail(stored.where, ": tensor ", name, " has shape ", text(at::IntArrayRef(found->second.shape)), " of ",
           found->second.stored_as, ", want ", text(tensor.sizes()), " of ", stored_dtype_of(tensor.scalar_type()));
    tensor.copy_(found->second.load());
  }
  if (stored.all.size() != own.size())
    fail(stored.where, ": has ", stored.all.size(), " tensors, want the ", own.size(), " of the optimiser");
  try {
    trainer.restore(point.state, own);
  } catch (const json::exception& error) {
    fail((point.checkpoint / "state.json").string(), ": is damaged: ", error.what());
  }
}

void tidy_run(const ResumePoint& point) {
  for (const fs::path& folder : {point.run, point.run / "checkpoints"}) remove_leftovers(folder);
  const fs::path path = point.run / "metrics.jsonl";
  const int64_t step = point.state.at("step");
  const bool evaluated = !point.state.at("evaluation_due").get<bool>();
  std::ifstream in(path);
  std::string kept;
  int64_t last = 0;  // step of which there is a line
  for (std::string line; read_line(in, line, path.string());) {
    const json record = json::parse(line, nullptr, false);
    if (!record.contains("step") || !record["step"].is_number_integer()) break;  // cut off where the process ended
    const int64_t of = record["step"];
    if (of > step || (of == step && record.contains("validation_loss") && !evaluated)) break;
    kept += line + "\n";
    if (record.contains("loss")) last = of;
  }
  in.close();
  if (last < step)
    log_warn(text(path.string(), ": ends at step ", last, " and the checkpoint is of step ", step,
                  ": lines of the steps between them are lost"));
  write_file_atomic(path, kept);
}

}  // namespace motet
