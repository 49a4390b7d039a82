#include "motet/data/token_shard.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "motet/core/checked.h"
#include "motet/core/error.h"
#include "motet/formats/byte_reader.h"

namespace motet {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

constexpr std::string_view kMagic = "MOTETTOK";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMostVocabulary = uint64_t{1} << 31;
constexpr size_t kCheckedTokens = 1 << 16;  // at once

// The first 64 bytes.
struct Header {
  char magic[8];
  uint32_t version, width;
  uint64_t vocabulary, tokens, documents, reserved, payload_hash, header_hash;
};
static_assert(sizeof(Header) == 64);

constexpr size_t kHashedHeader = offsetof(Header, header_hash);

std::string_view view(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t padding(uint64_t bytes) { return (8 - bytes % 8) % 8; }

// llm.c, dev/data/data_common.py: 256 int32 with magic, version and count, then the tokens.
constexpr size_t kLlmcHeader = 256 * sizeof(int32_t);
constexpr uint32_t kLlmcGpt2 = 20240520, kLlmcLlama3 = 20240801;
constexpr int32_t kGpt2EndOfText = 50256, kLlama3BeginOfText = 128000;

uint32_t first_word(std::span<const std::byte> bytes) {
  uint32_t word = 0;
  if (bytes.size() >= sizeof word) std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

}  // namespace

TokenShard::TokenShard(std::span<const std::byte> bytes, const std::string& where) : bytes_(bytes), where_(where) {
  if (view(bytes).starts_with(kMagic)) {
    parse_own();
  } else if (first_word(bytes) == kLlmcGpt2) {
    parse_foreign(2, kGpt2EndOfText);
  } else if (first_word(bytes) == kLlmcLlama3) {
    parse_foreign(4, kLlama3BeginOfText);
  } else {
    fail(where, ": is no shard of tokens, want one of motet data prepare or of llm.c");
  }
}

void TokenShard::parse_own() {
  ByteReader reader(bytes_, where_);
  Header header;
  const auto head = reader.take(sizeof header, "the header");
  std::memcpy(&header, head.data(), sizeof header);
  if (header.version != kVersion) fail(where_, ": version is ", header.version, ", want ", kVersion);
  if (hash64(view(head).substr(0, kHashedHeader)) != header.header_hash)
    fail(where_, ": the header's checksum is wrong");
  if (header.width != 2 && header.width != 4) fail(where_, ": a token has ", header.width, " bytes, want 2 or 4");
  const uint64_t most = header.width == 2 ? uint64_t{1} << 16 : kMostVocabulary;
  if (header.vocabulary < 1 || header.vocabulary > most)
    fail(where_, ": a vocabulary of ", header.vocabulary, ", want 1 to ", most, " in ", header.width, " bytes");
  if (header.reserved != 0) fail(where_, ": reserved bytes are set");
  const auto token_bytes = checked_multiply(header.tokens, header.width);
  const auto document_bytes = checked_multiply(header.documents, sizeof(uint64_t));
  if (!token_bytes || !document_bytes) fail(where_, ": the header's counts are too large");
  tokens_ = reader.take(*token_bytes, "the tokens");
  reader.take(padding(*token_bytes), "the padding");
  documents_ = reader.take(*document_bytes, "the documents");
  if (reader.left() > 0) fail(where_, ": ", reader.left(), " bytes follow the documents");
  size_ = header.tokens, width_ = static_cast<int>(header.width);
  vocabulary_ = header.vocabulary, hash_ = header.payload_hash;
  for (uint64_t i = 0; i < num_documents(); ++i) {
    if (document(i) >= size_ || (i > 0 && document(i) <= document(i - 1)))
      fail(where_, ": document ", i, " begins at token ", document(i), " of ", size_, ", want ascending places");
  }
}

void TokenShard::parse_foreign(int width, int64_t first_token) {
  ByteReader reader(bytes_, where_);
  const auto head = reader.take(kLlmcHeader, "llm.c's header");
  int32_t words[3];
  std::memcpy(words, head.data(), sizeof words);
  const int32_t version = width == 2 ? 1 : 7;
  if (words[1] != version) fail(where_, ": version is ", words[1], ", want ", version, " of llm.c");
  if (words[2] < 0) fail(where_, ": the number of tokens is ", words[2]);
  size_ = static_cast<uint64_t>(words[2]), width_ = width, first_token_ = first_token;
  vocabulary_ = width == 2 ? uint64_t{1} << 16 : kMostVocabulary;
  tokens_ = reader.take(size_ * static_cast<uint64_t>(width), "the tokens");
  if (reader.left() > 0) fail(where_, ": ", reader.left(), " bytes follow the ", size_, " tokens");
}

uint64_t TokenShard::token(uint64_t place) const {
  if (width_ == 2) {
    uint16_t id;
    std::memcpy(&id, tokens_.data() + place * sizeof id, sizeof id);
    return id;
  }
  uint32_t id;
  std::memcpy(&id, tokens_.data() + place * sizeof id, sizeof id);
  return id;
}

uint64_t TokenShard::document(uint64_t index) const {
  uint64_t place;
  std::memcpy(&place, documents_.data() + index * sizeof place, sizeof place);
  return place;
}

void TokenShard::read(uint64_t begin, std::span<int64_t> out) const {
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t id = token(begin + i);
    if (id >= vocabulary_)
      fail(where_, ": token ", begin + i, " is ", id, ", outside of the vocabulary of ", vocabulary_);
    out[i] = static_cast<int64_t>(id);
  }
}

std::vector<uint64_t> TokenShard::document_starts(uint64_t begin, uint64_t end) const {
  std::vector<uint64_t> starts;
  if (foreign()) {
    for (uint64_t place = begin; place < end; ++place)
      if (token(place) == static_cast<uint64_t>(first_token_)) starts.push_back(place);
    return starts;
  }
  uint64_t low = 0, high = num_documents();
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    document(middle) < begin ? low = middle + 1 : high = middle;
  }
  for (; low < num_documents() && document(low) < end; ++low) starts.push_back(document(low));
  return starts;
}

void TokenShard::check() const {
  if (!foreign() && hash64(view(bytes_.subspan(sizeof(Header)))) != hash_)
    fail(where_, ": the checksum is wrong, the file was changed or damaged");
  std::vector<int64_t> ids;
  for (uint64_t at = 0; at < size_; at += ids.size()) {
    ids.resize(std::min<uint64_t>(kCheckedTokens, size_ - at));
    read(at, ids);
  }
}

bool is_llmc_shard(const std::string& path) {
  try {
    const MappedFile file(path);
    const uint32_t word = first_word(file.bytes());
    return word == kLlmcGpt2 || word == kLlmcLlama3;
  } catch (const Error&) {
    return false;
  }
}

TokenShardWriter::TokenShardWriter(const std::filesystem::path& path, uint64_t vocabulary)
    : file_(path), vocabulary_(vocabulary), width_(vocabulary <= 1 << 16 ? 2 : 4) {
  file_.write(std::string(sizeof(Header), '\0'));  // its place; commit() fills it
}

void TokenShardWriter::begin_document() { documents_.push_back(size_); }

void TokenShardWriter::put(std::string_view bytes) {
  hash_.add(bytes);
  file_.write(bytes);
}

void TokenShardWriter::add(std::span<const int32_t> tokens) {
  buffer_.resize(tokens.size() * static_cast<size_t>(width_));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<uint32_t>(tokens[i]);  // little-endian: the low bytes come first
    std::memcpy(buffer_.data() + i * static_cast<size_t>(width_), &id, static_cast<size_t>(width_));
  }
  put(buffer_);
  size_ += tokens.size();
}

void TokenShardWriter::commit() {
  put(std::string(padding(size_ * static_cast<uint64_t>(width_)), '\0'));
  put({reinterpret_cast<const char*>(documents_.data()), documents_.size() * sizeof(uint64_t)});
  Header header = {.version = kVersion,
                   .width = static_cast<uint32_t>(width_),
                   .vocabulary = vocabulary_,
                   .tokens = size_,
                   .documents = documents_.size(),
                   .payload_hash = hash_.value()};
  std::memcpy(header.magic, kMagic.data(), kMagic.size());
  const std::string_view head(reinterpret_cast<const char*>(&header), sizeof header);
  header.header_hash = hash64(head.substr(0, kHashedHeader));
  file_.write_at(0, head);
  file_.commit();
}

}  // namespace motet
