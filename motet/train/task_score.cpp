#include "motet/train/task_score.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "motet/core/interrupt.h"
#include "motet/ops/device.h"
#include "motet/tasks/episodes.h"

namespace motet {
namespace {

constexpr int64_t kTokensAtOnce = 1 << 16;

// The likeliest token at each place of the answers, given the right ones before it: [B, answer_length] on the host.
Tensor said(ModelImpl& model, const Task& task, const std::vector<Episode>& episodes) {
  std::vector<std::vector<int64_t>> rows;
  for (const Episode& episode : episodes) {
    rows.emplace_back(episode.ids.begin(), episode.ids.end());
    rows.back().insert(rows.back().end(), episode.answer.begin(), episode.answer.end() - 1);
  }
  const Tensor hidden = model.hidden(rows_of(rows).to(model.device())).slice(1, task.length() - 1);
  return model.logits(hidden).argmax(-1).cpu();
}

}  // namespace

double TaskScore::Counts::error() const {
  return episodes > 1 ? std::sqrt(accuracy() * (1 - accuracy()) / static_cast<double>(episodes - 1)) : 0;
}

void TaskScore::Counts::add(const Counts& more) {
  episodes += more.episodes, right += more.right, misattributed += more.misattributed, chances += more.chances;
}

void TaskScore::add(const TaskScore& more) {
  all.add(more.all);
  for (const auto& [slice, counts] : more.slices) slices[slice].add(counts);
  has_others |= more.has_others;
}

std::vector<int64_t> first_episodes(uint64_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

Tensor rows_of(const std::vector<std::vector<int64_t>>& rows) {
  const auto count = static_cast<int64_t>(rows.size()), length = static_cast<int64_t>(rows.front().size());
  std::vector<int64_t> all;
  for (const std::vector<int64_t>& row : rows) all.insert(all.end(), row.begin(), row.end());
  return moved(all, {count, length}, at::kCPU);
}

TaskScore score_task(ModelImpl& model, const Task& task, std::span<const int64_t> numbers, int64_t at_once) {
  at::NoGradGuard no_grad;
  if (at_once <= 0) at_once = std::max<int64_t>(1, kTokensAtOnce / task.length());
  TaskScore score;
  for (size_t first = 0; first < numbers.size(); first += static_cast<size_t>(at_once)) {
    check_interrupt();
    std::vector<Episode> episodes;
    for (const int64_t number : numbers.subspan(first, std::min(static_cast<size_t>(at_once), numbers.size() - first)))
      episodes.push_back(task.episode(kTestSeed, static_cast<uint64_t>(number), true));
    const Tensor found = said(model, task, episodes);
    const int64_t* next = host_numbers<int64_t>(found).data();
    for (const Episode& episode : episodes) {
      const std::vector<int32_t> answer(next, next + task.answer_length());
      next += task.answer_length();
      const bool right = answer == episode.answer,
                 misattributed = std::ranges::find(episode.others, answer) != episode.others.end();
      score.has_others |= !episode.others.empty();
      const auto count = [&](TaskScore::Counts& counts) {
        ++counts.episodes, counts.right += right, counts.misattributed += misattributed;
        counts.chances += chance(task, episode);
      };
      count(score.all);
      for (const std::string& slice : episode.slices) count(score.slices[slice]);
    }
  }
  return score;
}

}  // namespace motet
