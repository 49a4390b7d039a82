#include "motet/text/bpe/bpe_trainer.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/text/pipeline/pipeline.h"
#include "motet/text/regex/regex.h"

namespace motet {
namespace {

using nlohmann::json;

struct Word {
  std::vector<int32_t> symbols;
  int64_t count;
};

struct PairCandidate {
  int64_t count;
  int32_t left, right;
  // The most frequent first; of equals the pair with the lower ids.
  bool operator<(const PairCandidate& other) const {
    if (count != other.count) return count < other.count;
    return std::tie(left, right) > std::tie(other.left, other.right);
  }
};

struct Pair {
  int64_t count = 0;
  std::vector<uint32_t> words;  // where it is, or was; ascending, maybe twice
};

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

class Learner {
 public:
  Learner(std::vector<Word> words, int32_t first_id) : words_(std::move(words)), next_id_(first_id) {
    for (uint32_t i = 0; i < words_.size(); ++i) count_word(i, +1);
    for (const auto& [key, pair] : pairs_) push(key);
  }

  struct Merge {
    int32_t left, right;
  };

  // The next merge, or nothing when no pair comes twice.
  bool next(Merge& merge) {
    while (!queue_.empty()) {
      const PairCandidate top = queue_.top();
      queue_.pop();
      const uint64_t key = key_of(top.left, top.right);
      const auto found = pairs_.find(key);
      if (found == pairs_.end() || found->second.count != top.count) continue;  // it has changed, and is there anew
      if (top.count < 2) return false;
      apply(top.left, top.right);
      merge = {top.left, top.right};
      return true;
    }
    return false;
  }

 private:
  void push(uint64_t key) {
    const auto found = pairs_.find(key);
    if (found == pairs_.end() || found->second.count <= 0) return;
    queue_.push({found->second.count, static_cast<int32_t>(key >> 32), static_cast<int32_t>(key & UINT32_MAX)});
  }

  void count_word(uint32_t index, int sign) {
    const Word& word = words_[index];
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      const uint64_t key = key_of(word.symbols[i], word.symbols[i + 1]);
      Pair& pair = pairs_[key];
      pair.count += sign * word.count;
      if (sign > 0 && (pair.words.empty() || pair.words.back() != index)) pair.words.push_back(index);
      changed_.push_back(key);
    }
  }

  void apply(int32_t left, int32_t right) {
    std::vector<uint32_t> where = std::move(pairs_[key_of(left, right)].words);
    std::sort(where.begin(), where.end());
    where.erase(std::unique(where.begin(), where.end()), where.end());
    const int32_t id = next_id_++;
    changed_.clear();
    for (const uint32_t index : where) {
      auto& symbols = words_[index].symbols;
      bool there = false;
      for (size_t i = 0; i + 1 < symbols.size() && !there; ++i) there = symbols[i] == left && symbols[i + 1] == right;
      if (!there) continue;
      count_word(index, -1);
      size_t out = 0;
      for (size_t i = 0; i < symbols.size(); ++i) {
        const bool merge = i + 1 < symbols.size() && symbols[i] == left && symbols[i + 1] == right;
        symbols[out++] = merge ? id : symbols[i];
        i += merge;
      }
      symbols.resize(out);
      count_word(index, +1);
    }
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const uint64_t key : changed_) {
      push(key);
      const auto found = pairs_.find(key);
      if (found != pairs_.end() && found->second.count == 0) pairs_.erase(found);
    }
  }

  std::vector<Word> words_;
  int32_t next_id_;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::vector<uint64_t> changed_;
  std::priority_queue<PairCandidate> queue_;
};

json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}};
}

json frame() {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {{{"id", 0},
             {"content", "<|endoftext|>"},
             {"special", true},
             {"single_word", false},
             {"lstrip", false},
             {"rstrip", false},
             {"normalized", false}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level()},
          {"post_processor", nullptr},
          {"decoder", byte_level()},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false}}}};
}

// The last place from `from` on of which it is certain that no piece crosses it, however the text goes on: a space
// between letters, or behind a line break and before a character that is no white space. 0: none.
size_t certain_cut(std::string_view text, size_t from) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto visible = [](char c) { return (c > ' ' && c < 0x7F) || static_cast<unsigned char>(c) >= 0xE4; };
  for (size_t at = text.size() < 2 ? 0 : text.size() - 2; at > 0 && at >= from; --at) {
    if (text[at] == ' ' && letter(text[at - 1]) && letter(text[at + 1])) return at;
    if (text[at] == '\n' && visible(text[at + 1])) return at + 1;
  }
  return 0;
}

}  // namespace

void BpeTrainer::add(std::string_view part) {
  constexpr size_t kMostWaiting = 1 << 26;  // a text without a certain cut is cut where it is then
  const size_t before = rest_.size();
  rest_ += part;
  size_t cut = certain_cut(rest_, before < 2 ? 0 : before - 2);
  if (cut == 0 && rest_.size() > kMostWaiting) cut = character_before(rest_, rest_.size());
  if (cut == 0) return;
  count(std::string_view(rest_).substr(0, cut));
  rest_.erase(0, cut);
}

void BpeTrainer::count(std::string_view text) {
  static const Regex pattern(kGpt2Pattern);
  std::string storage;
  const std::string_view valid = valid_utf8(text, storage);
  RegexSearch search(pattern, valid);
  while (const auto found = search.next()) {
    const std::string_view piece = valid.substr(found->begin, found->end - found->begin);
    const auto known = counts_.find(piece);
    if (known != counts_.end()) {
      ++known->second;
    } else {
      counts_.emplace(piece, 1);
    }
  }
  if (counts_.size() > most_pieces_) prune();
}

void BpeTrainer::prune() {
  for (uint64_t least = 1; counts_.size() > most_pieces_ / 2; ++least) {
    std::erase_if(counts_, [&](const auto& entry) { return entry.second <= least; });
  }
}

std::unique_ptr<Tokenizer> BpeTrainer::finish(int64_t vocabulary_size, const std::function<void(int64_t)>& progress) {
  constexpr int32_t kFirstByte = 1, kFirstMerge = 257;
  if (vocabulary_size < kFirstMerge || vocabulary_size > 1 << 24) {
    fail_usage("--vocab-size: ", vocabulary_size, " is outside of ", kFirstMerge, " to ", 1 << 24,
               ": 256 bytes and <|endoftext|> are always there");
  }
  count(std::exchange(rest_, {}));
  if (counts_.empty()) fail("the text is empty, want some to learn from");
  std::vector<std::pair<std::string_view, uint64_t>> sorted(counts_.begin(), counts_.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<Word> words;
  words.reserve(sorted.size());
  for (const auto& [piece, count] : sorted) {
    words.push_back({{}, static_cast<int64_t>(count)});
    for (const char byte : piece) words.back().symbols.push_back(kFirstByte + static_cast<unsigned char>(byte));
  }
  sorted.clear();
  counts_.clear();
  PipelineParts parts;
  parts.frame = frame();
  BpeModel& model = parts.model;
  model.pieces = {"<|endoftext|>"};
  std::vector<std::string> bytes = {""};
  for (int byte = 0; byte < 256; ++byte) {
    bytes.push_back(std::string(1, static_cast<char>(byte)));
    model.pieces.push_back(byte_character(static_cast<unsigned char>(byte)));
    model.byte_ids[static_cast<size_t>(byte)] = kFirstByte + byte;
  }
  Learner learner(std::move(words), kFirstMerge);
  Learner::Merge merge{};
  while (static_cast<int64_t>(bytes.size()) < vocabulary_size && learner.next(merge)) {
    const auto id = static_cast<int32_t>(bytes.size());
    model.merges.set(merge.left, merge.right, {static_cast<uint32_t>(id - kFirstMerge), id});
    bytes.push_back(bytes[static_cast<size_t>(merge.left)] + bytes[static_cast<size_t>(merge.right)]);
    model.pieces.push_back(model.pieces[static_cast<size_t>(merge.left)] +
                           model.pieces[static_cast<size_t>(merge.right)]);
    if (progress) progress(id - kFirstMerge + 1);
  }
  for (size_t id = 1; id < bytes.size(); ++id) model.vocabulary.add(bytes[id], static_cast<int32_t>(id));
  if (model.vocabulary.size() + 1 != bytes.size()) fail("bpe: two merges make the same piece");
  parts.added = {{.id = 0, .content = "<|endoftext|>", .special = true}};
  parts.pre_tokenizers = read_pre_tokenizers(byte_level(), "bpe");
  parts.decoders = read_decoders(byte_level(), "bpe");
  return std::make_unique<PipelineTokenizer>(std::move(parts), "bpe");
}

}  // namespace motet
