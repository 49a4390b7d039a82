#include "motet/tasks/episodes.h"

#include <algorithm>

namespace motet {

uint64_t test_episodes(const Task& trained, const Task& own) {
  const auto part = kTestEpisodes * static_cast<uint64_t>(trained.length()) / static_cast<uint64_t>(own.length());
  return std::max<uint64_t>(part, 1000);
}

void EpisodeTokens::read(uint64_t begin, std::span<int64_t> out) const {
  const uint64_t row = row_length();
  for (uint64_t at = begin; at < begin + out.size();) {
    const uint64_t number = at / row, first = at % row;
    if (number >= episodes_) {
      out[at - begin] = 0;
      ++at;
      continue;
    }
    const Episode episode = task_->episode(seed_, number, test_);
    const uint64_t asked = episode.ids.size();
    for (uint64_t i = first; i < row && at < begin + out.size(); ++i, ++at)
      out[at - begin] = i < asked ? episode.ids[i] : episode.answer[i - asked];
  }
}

std::vector<uint64_t> EpisodeTokens::document_starts(uint64_t begin, uint64_t end) const {
  std::vector<uint64_t> starts;
  for (uint64_t at = begin / row_length() * row_length() + row_length(); at < end; at += row_length())
    starts.push_back(at);
  return starts;
}

void EpisodeTokens::leave_out(uint64_t begin, std::span<int64_t> targets) const {
  for (size_t i = 0; i < targets.size(); ++i)
    if ((begin + i) % row_length() < static_cast<uint64_t>(task_->length())) targets[i] = kLeftOut;
}

}  // namespace motet
