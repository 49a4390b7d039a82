#include "motet/commands/run_metrics.h"

#include <cmath>
#include <ctime>
#include <fstream>
#include <map>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/ops/device.h"
#include "motet/ops/peak.h"

namespace motet {
namespace {

// What a line is about: the first key that it has, and the folder of its tags.
constexpr std::pair<const char*, const char*> kKinds[] = {{"loss", "train/"},
                                                          {"validation_loss", "validation/"},
                                                          {"layers", "diagnosis/"},
                                                          {"peak_flops_per_second", "machine/"}};

std::string tag_folder(const nlohmann::json& record) {
  for (const auto& [key, folder] : kKinds)
    if (record.contains(key)) return folder;
  return "";
}

// Of nested ones "KEY/PART": "diagnosis/update_ratio/attention", "diagnosis/entropy/layer_0". Lists by head have no
// tag.
std::vector<std::pair<std::string, double>> scalars_of(const nlohmann::json& record) {
  std::vector<std::pair<std::string, double>> all;
  const auto add = [&, folder = tag_folder(record)](const std::string& tag, const nlohmann::json& value) {
    if (value.is_number() && std::isfinite(value.get<double>())) all.emplace_back(folder + tag, value.get<double>());
  };
  for (const auto& item : record.items()) {
    if (item.key() == "step") continue;
    add(item.key() == "validation_loss" ? "loss" : item.key(), item.value());
    if (item.value().is_object())
      for (const auto& part : item.value().items()) add(item.key() + "/" + part.key(), part.value());
  }
  for (size_t i = 0; record.contains("layers") && i < record["layers"].size(); ++i)
    for (const auto& item : record["layers"][i].items()) add(text(item.key(), "/layer_", i), item.value());
  return all;
}

}  // namespace

RunMachine measured_machine(const TrainOptions& train, int64_t threads, int64_t processes, const ModelCost& cost) {
  const at::Device device = parse_device(train.device);
  const double peak = peak_flops_per_second(product_type(train.dtype), device);
  reset_peak_memory(device);
  return {.device = device,
          .threads = threads,
          .peak_flops_per_second = static_cast<double>(processes) * peak,
          .flops_per_token = 3 * cost.flops_per_token,
          .output_flops_per_token = 3 * cost.output_flops_per_token};
}

RunMetrics::RunMetrics(const std::filesystem::path& run, const RunMachine& machine, double seconds_before)
    : machine_(machine),
      begin_(static_cast<double>(std::time(nullptr)) - seconds_before),
      lines_(run / "metrics.jsonl"),
      events_((remove_tensorboard_files(run), run)) {
  const std::string path = (run / "metrics.jsonl").string();
  std::ifstream in(path);
  for (std::string line; read_line(in, line, path);) {
    try {
      show(nlohmann::json::parse(line));
    } catch (const nlohmann::json::exception& error) {
      fail(path, ": is damaged: ", error.what());
    }
  }
}

void RunMetrics::write(const StepRecord& r) {
  if (!introduced_)
    write(nlohmann::json{{"step", r.step - 1},
                         {"device", machine_.device.str()},
                         {"threads", machine_.threads},
                         {"peak_flops_per_second", machine_.peak_flops_per_second},
                         {"flops_per_token", machine_.flops_per_token},
                         {"command", machine_.command}});
  introduced_ = true;
  nlohmann::json record = metrics_record(r);
  const double speed = static_cast<double>(r.tokens_seen) / static_cast<double>(r.step) / r.seconds;
  record["tokens_per_second"] = speed;
  const double flops = machine_.flops_per_token - (1 - r.decoded) * machine_.output_flops_per_token;
  record["utilization"] = speed * flops / machine_.peak_flops_per_second;
  peak_bytes_ = std::max(peak_bytes_, peak_memory(machine_.device));  // Linux forgets some pages of its own
  if (peak_bytes_ > 0) record["peak_bytes"] = peak_bytes_;
  write(record);
}

void RunMetrics::write(const EvalRecord& r) { write(metrics_record(r)); }
void RunMetrics::write(const DiagnosisRecord& r) { write(metrics_record(r)); }

void RunMetrics::write(const nlohmann::json& record) {
  lines_.write(record);
  show(record);
}

void RunMetrics::show(const nlohmann::json& record) {
  if (record.contains("loss")) seconds_ += record.at("seconds").get<double>();
  events_.write(record.at("step"), begin_ + seconds_, scalars_of(record));
}

}  // namespace motet
