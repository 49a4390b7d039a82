#include "motet/data/masking.h"

#include "motet/core/error.h"
#include "motet/core/splitmix.h"

namespace motet {
namespace {

constexpr uint64_t kReplacements = uint64_t{1} << 32;  // draws of replacing tokens begin here in a row's stream

// Part p of 2^32.
constexpr uint64_t part(double p) { return static_cast<uint64_t>(p * 4294967296.0); }

// Uniform below `bound`, whose share of 2^64 is too small for a bias to matter.
uint64_t below(uint64_t draw, uint64_t bound) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(draw) * bound >> 64);
}

}  // namespace

void Masking::hide(Batch& batch, std::span<const uint64_t> rows) const {
  if (rows.size() != static_cast<size_t>(batch.rows))
    fail("masking: ", rows.size(), " numbers of rows, want ", batch.rows);
  const auto columns = static_cast<size_t>(batch.columns);
  const auto is = [](const std::vector<bool>& table, int64_t id) {
    return static_cast<size_t>(id) < table.size() && table[static_cast<size_t>(id)];
  };
  batch.targets.assign(batch.inputs.size(), kLeftOut);
  batch.leaves_out = true;
  std::vector<size_t> units;  // where those begin that are hidden as a whole: tokens, or words
  for (size_t row = 0; row < rows.size(); ++row) {
    int64_t *ids = &batch.inputs[row * columns], *targets = &batch.targets[row * columns];
    const int64_t* documents = batch.documents.empty() ? nullptr : &batch.documents[row * columns];
    const uint64_t key = splitmix64(key_, rows[row]);
    units.clear();
    for (size_t at = 0; at < columns; ++at) {
      if (is(vocabulary_.special, ids[at])) continue;
      const bool goes_on = !vocabulary_.begins_word.empty() && at > 0 && !is(vocabulary_.begins_word, ids[at]) &&
                           !is(vocabulary_.special, ids[at - 1]) && (!documents || documents[at] == documents[at - 1]);
      if (!goes_on) units.push_back(at);
    }
    const auto hide_unit = [&](size_t index) {
      const size_t end = index + 1 < units.size() ? units[index + 1] : columns;
      for (size_t at = units[index]; at < end && !is(vocabulary_.special, ids[at]); ++at) {
        targets[at] = ids[at];
        const uint64_t draw = splitmix64(key, at) & 0xFFFFFFFFu;  // its upper half says whether a unit is hidden
        if (draw < part(kMaskOfHidden))
          ids[at] = vocabulary_.mask;
        else if (draw < part(kMaskOfHidden + kOtherOfHidden))
          ids[at] =
              static_cast<int64_t>(below(splitmix64(key, kReplacements + at), static_cast<uint64_t>(vocabulary_.size)));
      }
    };
    // Chosen before anything is replaced, for a replacement may be special or begin a word.
    std::vector<size_t> chosen;
    for (size_t i = 0; i < units.size(); ++i)
      if (splitmix64(key, units[i]) >> 32 < part(kHidden)) chosen.push_back(i);
    if (chosen.empty() && !units.empty()) chosen.push_back(below(splitmix64(key, 2 * kReplacements), units.size()));
    for (const size_t index : chosen) hide_unit(index);
  }
}

}  // namespace motet
