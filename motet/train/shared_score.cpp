#include "motet/train/shared_score.h"

#include "motet/core/interrupt.h"

namespace motet {
namespace {

using nlohmann::json;

json written(const WindowLosses& w) {
  return {{"losses", w.losses}, {"counts", w.counts}, {"right", w.right}, {"bytes", w.bytes}};
}
// A loss that is not finite is null in JSON.
WindowLosses windows_read(const json& j) {
  WindowLosses out{.counts = j.at("counts"), .right = j.at("right"), .bytes = j.at("bytes")};
  for (const json& loss : j.at("losses")) out.losses.push_back(loss.is_null() ? NAN : loss.get<double>());
  return out;
}

json written(const TaskScore::Counts& c) { return {c.episodes, c.right, c.misattributed, c.chances}; }
TaskScore::Counts counts_read(const json& j) { return {j[0], j[1], j[2], j[3]}; }

json written(const TaskScore& s) {
  json slices = json::object();
  for (const auto& [name, counts] : s.slices) slices[name] = written(counts);
  return {{"all", written(s.all)}, {"slices", slices}, {"has_others", s.has_others}};
}
TaskScore task_read(const json& j) {
  TaskScore out{.all = counts_read(j.at("all")), .has_others = j.at("has_others")};
  for (const auto& [name, counts] : j.at("slices").items()) out.slices[name] = counts_read(counts);
  return out;
}

// What `score` makes of each process's part of the numbers, by rank.
template <class Score>
std::vector<json> parts(const Processes& processes, std::span<const int64_t> numbers, const Score& score) {
  const auto [first, end] = processes.part(static_cast<int64_t>(numbers.size()));
  json own;
  try {
    own = score(numbers.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first)));
  } catch (const Interrupted&) {
    own = {{"signal", interrupt_signal()}};
  }
  std::vector<json> all = processes.everyones(own);
  for (const json& part : all)
    if (part.contains("signal")) {
      interrupt(part["signal"]);
      throw Interrupted("interrupted");
    }
  return all;
}

}  // namespace

WindowScore score_windows(const Processes& processes, ModelImpl& model, const ScoredTokens& scored,
                          std::span<const int64_t> which, const AtOnce& at_once) {
  if (processes.alone()) return score_windows(model, scored, which, at_once);
  WindowLosses all{.masked = scored.masks.has_value()};
  for (const json& part : parts(processes, which, [&](std::span<const int64_t> own) {
         return written(window_losses(model, scored, own, at_once));
       }))
    all.append(windows_read(part));
  return all.score();
}

TaskScore score_task(const Processes& processes, ModelImpl& model, const Task& task, std::span<const int64_t> numbers) {
  if (processes.alone()) return score_task(model, task, numbers);
  TaskScore all;
  for (const json& part :
       parts(processes, numbers, [&](std::span<const int64_t> own) { return written(score_task(model, task, own)); }))
    all.add(task_read(part));
  return all;
}

}  // namespace motet
