#include "motet/verify/tokenizer_cases.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/core/utf8.h"
#include "motet/formats/json.h"
#include "motet/text/pipeline/stream_decoder.h"
#include "motet/text/readers/load.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Files of a tokenizer; of two that belong together only the first is named.
std::vector<std::string> files_of(const std::string& name, const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) fail("cannot read ", quote(folder), ": ", error.message());
  for (const auto& entry : entries) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with(name) && !file.ends_with("encoder.json")) out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  if (out.empty()) fail(folder, ": holds no file of the tokenizer ", quote(name));
  return out;
}

template <class T>
T field(const json& value, const char* name, const std::string& where) {
  try {
    return value.at(name).get<T>();
  } catch (const json::exception&) {
    fail(where, ": the case has no ", quote(name), " of the right type");
  }
}

bool stream_is_valid(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamDecoder decoder(tokenizer);
  for (const int32_t id : ids) {
    if (utf8_invalid_at(decoder.push(id)) != std::string::npos) return false;
  }
  return utf8_invalid_at(decoder.flush()) == std::string::npos;
}

void check(TokenizerReport& report, const Tokenizer& tokenizer, const json& value, const std::string& where) {
  const auto ids = field<std::vector<int32_t>>(value, "ids", where);
  ++report.cases;
  std::string wrong;
  if (!value.value("decode_only", false)) {
    const auto text = field<std::string>(value, "text", where);
    const std::string_view view = text;
    // GPT-2's cases have special tokens as text unless they say otherwise.
    const EncodeOptions options{.parse_special = value.value("parse_special", report.name != "gpt2")};
    const std::vector<TextToken> tokens = tokenizer.tokens(text, options);
    std::vector<int32_t> placed;
    json offsets = json::array();
    for (const TextToken& token : tokens) {
      placed.push_back(token.id);
      offsets.push_back({token.span.begin, token.span.end});
    }
    if (placed != ids || tokenizer.encode_all(std::span(&view, 1), 1, options)[0] != ids) {
      ++report.wrong_ids;
      wrong = "ids";
    }
    if (value.contains("offsets") && value["offsets"] != offsets) {
      ++report.wrong_offsets;
      wrong = "offsets";
    }
  }
  if (tokenizer.text(ids, false) != field<std::string>(value, "decoded", where) || !stream_is_valid(tokenizer, ids)) {
    ++report.wrong_text;
    wrong = "text";
  }
  if (!wrong.empty() && report.first_wrong.empty()) report.first_wrong = where + ": " + wrong + " differ";
}

}  // namespace

std::vector<TokenizerReport> verify_tokenizers(const std::string& folder, const std::string& tokenizers) {
  const std::string path = fs::is_directory(folder) ? (fs::path(folder) / "cases.jsonl").string() : folder;
  const std::string bytes = read_file(path);
  std::map<std::string, std::vector<std::pair<json, std::string>>> cases;
  for (size_t begin = 0, line = 1; begin < bytes.size(); ++line) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string where = text(path, ":", line);
    if (end > begin) {
      json value = parse_json(std::string_view(bytes).substr(begin, end - begin), where);
      const auto name = field<std::string>(value, "tokenizer", where);
      cases[name].emplace_back(std::move(value), where);
    }
    begin = end + 1;
  }
  if (cases.empty()) fail(path, ": holds no cases");
  std::vector<TokenizerReport> reports;
  for (const auto& [name, own] : cases) {
    for (const std::string& file : files_of(name, tokenizers)) {
      const auto tokenizer = load_tokenizer(file);
      TokenizerReport report{.name = name, .file = fs::path(file).filename().string()};
      for (const auto& [value, where] : own) {
        check_interrupt();
        check(report, *tokenizer, value, where);
      }
      reports.push_back(report);
    }
  }
  return reports;
}

}  // namespace motet
