#include "motet/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/text/pipeline/decoder.h"
#include "motet/text/pipeline/pipeline.h"
#include "motet/text/pipeline/pre_tokenizer.h"

namespace motet {
namespace {

using nlohmann::json;

// One UTF-8 character and its place.
struct Character {
  std::string_view bytes;
  size_t offset;
};

// Calls `visit(Character)` for each character. Throws Error with the offset of the first byte that is none.
template <class Visit>
void for_each_character(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Step::Kind::character) {
      fail("tokenizer 'chars': no UTF-8 at offset ", at, " of the text, want UTF-8 or the tokenizer 'bytes'");
    }
    visit(Character{text.substr(at, step.size), at});
    at += step.size;
  }
}

std::vector<std::string> byte_characters() {
  std::vector<std::string> out;
  for (int byte = 0; byte < 256; ++byte) out.push_back(byte_character(static_cast<unsigned char>(byte)));
  return out;
}

json tokenizer_frame(json model, json pre_tokenizer, json decoder) {
  return {{"version", "1.0"},          {"truncation", nullptr},
          {"padding", nullptr},        {"added_tokens", json::array()},
          {"normalizer", nullptr},     {"pre_tokenizer", std::move(pre_tokenizer)},
          {"post_processor", nullptr}, {"decoder", std::move(decoder)},
          {"model", std::move(model)}};
}

json vocabulary_json(const std::vector<std::string>& entries) {
  json out = json::object();
  for (size_t i = 0; i < entries.size(); ++i) out[entries[i]] = i;
  return out;
}

// The entries of a vocabulary in the order of their ids.
std::vector<std::string> entries_of(const json& vocabulary, const std::string& where) {
  if (!vocabulary.is_object()) fail(where, ": model.vocab is no object");
  std::vector<std::string> entries(vocabulary.size());
  std::vector<bool> seen(vocabulary.size());
  for (const auto& [entry, id] : vocabulary.items()) {
    const bool fits = id.is_number_integer() && id >= 0 && id < vocabulary.size();
    if (!fits || seen[id.get<size_t>()]) {
      fail(where, ": the id of ", quote(entry), " is ", quote(id.dump()), ", want each of 0 to ", vocabulary.size() - 1,
           " once");
    }
    seen[id.get<size_t>()] = true;
    entries[id.get<size_t>()] = entry;
  }
  return entries;
}

}  // namespace

void check_token_id(int32_t id, int64_t size) {
  if (id < 0 || id >= size) fail("decode: token id ", id, " is outside of the vocabulary, want 0 to ", size - 1);
}

void parallel_texts(size_t count, int threads, const std::function<std::function<void(size_t)>()>& make) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto run = [&] {
    try {
      const auto work = make();
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next = count;
    }
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads && static_cast<size_t>(i) < count; ++i) helpers.emplace_back(run);
  run();
  for (std::thread& helper : helpers) helper.join();
  if (error) std::rethrow_exception(error);
}

size_t put_before(const Tokenizer& tokenizer, std::vector<int32_t>& ids) {
  const std::span<const int32_t> before = tokenizer.before();
  if (before.size() <= ids.size() && std::ranges::equal(before, std::span(ids).first(before.size()))) return 0;
  ids.insert(ids.begin(), before.begin(), before.end());
  return before.size();
}

std::optional<std::vector<int32_t>> Tokenizer::encode_at_most(std::string_view text, size_t most) const {
  std::vector<int32_t> ids = encode(text);
  if (ids.size() > most) return {};
  return ids;
}

std::vector<std::vector<int32_t>> Tokenizer::encode_all(std::span<const std::string_view> texts, int threads,
                                                        const EncodeOptions& options) const {
  std::vector<std::vector<int32_t>> out(texts.size());
  parallel_texts(texts.size(), threads, [&] { return [&](size_t i) { out[i] = encode(texts[i]); }; });
  return out;
}

std::string Tokenizer::text(std::span<const int32_t> ids, bool skip_special) const { return lossy_text(decode(ids)); }

std::vector<TextToken> ByteTokenizer::tokens(std::string_view text, const EncodeOptions&) const {
  std::vector<TextToken> out;
  for (size_t i = 0; i < text.size(); ++i) out.push_back({static_cast<unsigned char>(text[i]), {i, i + 1}});
  return out;
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  for (const int32_t id : ids) {
    check_token_id(id, vocabulary_size());
    out += static_cast<char>(id);
  }
  return out;
}

json ByteTokenizer::to_json() const {
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  const json model = {{"type", "BPE"}, {"vocab", vocabulary_json(byte_characters())}, {"merges", json::array()}};
  return tokenizer_frame(model, byte_level, byte_level);
}

CharTokenizer::CharTokenizer(std::string_view text) {
  std::unordered_map<std::string_view, bool> seen;
  for_each_character(text, [&](const Character& character) { seen[character.bytes] = true; });
  if (seen.empty()) fail("tokenizer 'chars': the text is empty, want at least one character");
  for (const auto& [character, present] : seen) characters_.emplace_back(character);
  std::sort(characters_.begin(), characters_.end());
}

std::vector<int32_t> CharTokenizer::encode(std::string_view text) const {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t i = 0; i < characters_.size(); ++i) ids[characters_[i]] = static_cast<int32_t>(i);
  std::vector<int32_t> out;
  out.reserve(text.size());
  for_each_character(text, [&](const Character& character) {
    const auto found = ids.find(character.bytes);
    if (found == ids.end()) {
      fail("tokenizer 'chars': the character ", quote(character.bytes), " at offset ", character.offset,
           " is not among the ", characters_.size(), " of the vocabulary");
    }
    out.push_back(found->second);
  });
  return out;
}

std::vector<TextToken> CharTokenizer::tokens(std::string_view text, const EncodeOptions&) const {
  std::vector<TextToken> out;
  size_t at = 0;
  for (const int32_t id : encode(text)) {
    const size_t end = at + characters_[static_cast<size_t>(id)].size();
    out.push_back({id, {at, end}});
    at = end;
  }
  return out;
}

std::string CharTokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  for (const int32_t id : ids) {
    check_token_id(id, vocabulary_size());
    out += characters_[static_cast<size_t>(id)];
  }
  return out;
}

json CharTokenizer::to_json() const {
  const json model = {{"type", "WordLevel"}, {"vocab", vocabulary_json(characters_)}, {"unk_token", "[UNK]"}};
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", R"([\s\S])"}}}, {"behavior", "Isolated"}, {"invert", false}};
  return tokenizer_frame(model, split, {{"type", "Fuse"}});
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::string_view text) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  if (name == "chars") return std::make_unique<CharTokenizer>(text);
  throw UsageError(unknown_name("tokenizer", name, {"bytes", "chars"}));
}

namespace {

// Whether what stands around the model is what we wrote: nothing else becomes of a text.
bool same_pipeline(const json& read, const json& own) {
  return std::ranges::all_of(std::array{"added_tokens", "normalizer", "pre_tokenizer", "post_processor"},
                             [&](const char* part) {
                               const json theirs = read.value(part, json());
                               return theirs == own[part] || (theirs.empty() && own[part].empty());
                             });
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_json(const json& json, const std::string& where) {
  if (!json.is_object() || !json.contains("model") || !json["model"].is_object())
    fail(where, ": has no object 'model'");
  const nlohmann::json& model = json["model"];
  if (const auto own = ByteTokenizer().to_json(); model == own["model"] && same_pipeline(json, own))
    return std::make_unique<ByteTokenizer>();
  if (!model.contains("type") || model["type"] != "WordLevel") return read_pipeline(json, where);
  if (!model.contains("vocab")) fail(where, ": model.vocab is no object");
  const std::vector<std::string> entries = entries_of(model["vocab"], where);
  std::string all;
  for (const std::string& entry : entries) {
    if (utf8_length(entry) != 1) fail(where, ": the entry ", quote(entry), " is not one character");
    all += entry;
  }
  auto tokenizer = std::make_unique<CharTokenizer>(all);
  // Ids in another order than ours would silently decode to other text.
  const auto own = tokenizer->to_json();
  if (own["model"]["vocab"] != model["vocab"]) fail(where, ": the characters are not in the order of their bytes");
  if (!same_pipeline(json, own))
    fail(where,
         ": characters have another normalizer, pre_tokenizer, post_processor or added_tokens than motet gives them");
  return tokenizer;
}

}  // namespace motet
