#include "motet/serve/keys.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/words.h"

namespace motet {
namespace {

std::string padded(std::string_view key) {
  std::string all(key.substr(0, kMostKeyBytes));
  all.resize(kMostKeyBytes);
  return all;
}

std::string trimmed(std::string line) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  for (size_t i = 0; i < line.size(); ++i)
    if (line[i] == '#' && (i == 0 || blank(line[i - 1]))) line.resize(i);  // else it is part of a key
  while (!line.empty() && blank(line.back())) line.pop_back();
  line.erase(line.begin(), std::find_if_not(line.begin(), line.end(), blank));
  return line;
}

// The message names the place and never the key.
void check_key(const std::string& key, const std::string& where) {
  const bool visible = std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 127; });
  if (key.empty() || key.size() > kMostKeyBytes || !visible)
    fail_usage(where, "an API key has ", key.size(), " bytes", visible ? "" : " that are not all visible ASCII",
               ", want 1 to ", kMostKeyBytes, " characters without spaces");
}

}  // namespace

ApiKeys::ApiKeys(std::vector<std::string> keys) {
  for (const std::string& key : keys) {
    check_key(key, "");
    keys_.push_back(padded(key));
  }
}

std::vector<std::string> ApiKeys::of_file(const std::string& path) {
  std::vector<std::string> keys;
  for (size_t number = 0; const std::string& line : split(read_file(path), '\n')) {
    ++number;
    std::string key = trimmed(line);
    if (key.empty()) continue;
    check_key(key, text(path, ": line ", number, ": "));
    keys.push_back(std::move(key));
  }
  if (keys.empty()) fail(path, ": holds no key, want one a line");
  return keys;
}

std::optional<std::string> ApiKeys::owner(std::optional<std::string_view> authorization) const {
  if (keys_.empty()) return "";
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view value = authorization.value_or("");
  bool wrong = value.size() < kScheme.size() || value.size() - kScheme.size() > kMostKeyBytes;
  for (size_t i = 0; i < std::min(kScheme.size(), value.size()); ++i)
    wrong = wrong || (i < 6 ? (value[i] | 0x20) : value[i]) != kScheme[i];
  const std::string given = padded(wrong ? "" : value.substr(kScheme.size()));
  std::optional<std::string> found;
  for (size_t k = 0; k < keys_.size(); ++k) {
    unsigned char different = wrong;
    for (size_t i = 0; i < kMostKeyBytes; ++i) different |= static_cast<unsigned char>(keys_[k][i] ^ given[i]);
    if (different == 0) found = std::to_string(k);
  }
  return found;
}

}  // namespace motet
