#include "motet/text/readers/sentence_piece_frame.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "motet/core/error.h"
#include "motet/core/utf8.h"

namespace motet {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

const std::string kSpace = "\xE2\x96\x81";

json replace_literal(const std::string& from, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

json replace_regex(const char* pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", content}};
}

json isolate(const std::string& pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

std::string regex_escaped(const std::string& literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view("\\.+*?()[]{}|^$").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Literals that a regular expression takes one of, the longest that fits.
std::string any_of(std::vector<std::string> literals) {
  std::stable_sort(literals.begin(), literals.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::string out;
  for (const std::string& literal : literals) out += (out.empty() ? "" : "|") + regex_escaped(literal);
  return "(?:" + out + ")";
}

// Pieces that the pre-tokenizer isolates take their ids from the vocabulary (`ignore_merges`), and so would a text that
// is the name of a control token, a byte or a piece that merging never makes. Such a text is cut where its tokens meet.
class WholeNames {
 public:
  WholeNames(const BpeModel& model, std::vector<std::string> symbols)
      : model_(model), symbols_(std::move(symbols)), encoder_(model) {
    for (size_t id = 0; id < model.pieces.size(); ++id) ids_.emplace(model.pieces[id], static_cast<int32_t>(id));
  }

  // Cuts all names that need it. Gives a name that cannot be cut, or nothing.
  std::string cut() {
    for (const std::string& name : model_.pieces) {
      const bool apart = std::any_of(symbols_.begin(), symbols_.end(),
                                     [&](const std::string& symbol) { return name.find(symbol) != name.npos; });
      if (!apart && !cut(name)) return name;
    }
    return {};
  }

  // The first parts of the names that are cut; empty: none is.
  std::string pattern() const {
    std::string out;
    for (const auto& [left, rights] : cuts_)
      out += (out.empty() ? "" : "|") + regex_escaped(left) + "(?=" + any_of(rights) + "\\z)";
    return out.empty() ? out : "\\A(?:" + out + ")";
  }

 private:
  bool cut(const std::string& name) {
    const std::vector<BpeToken> tokens = encoder_.tokens(name);
    Ids wanted;
    for (const BpeToken& token : tokens) wanted.push_back(token.id);
    if (wanted == isolated(name)) return true;
    size_t at = 0;
    for (const BpeToken& token : tokens) {
      at += token.size;
      if (at == name.size() || continues_character(name[at])) continue;
      Ids both = isolated(name.substr(0, at));
      const Ids right = isolated(name.substr(at));
      both.insert(both.end(), right.begin(), right.end());
      if (both != wanted) continue;
      cuts_[name.substr(0, at)].push_back(name.substr(at));
      return true;
    }
    return false;
  }

  // The ids of a text that stands alone behind the pre-tokenizer.
  Ids isolated(const std::string& text) {
    const auto found = ids_.find(text);
    if (found != ids_.end()) return {found->second};
    Ids ids;
    encoder_.encode(text, ids);
    return ids;
  }

  const BpeModel& model_;
  std::vector<std::string> symbols_;
  BpeEncoder encoder_;
  std::unordered_map<std::string, int32_t> ids_;
  std::map<std::string, std::vector<std::string>> cuts_;
};

// The normalizers give the text of the live ones; their places differ, for there SentencePiece's hold.
json normalizers_of(const TokenizerVectors& vectors) {
  json normalizers = json::array();
  // collapse_spaces() in words of the format, whose Strip would take line ends too.
  if (vectors.collapse_spaces) normalizers = {replace_regex(" {2,}", " "), replace_regex("\\A |[ \u2581]+\\z", "")};
  if (vectors.add_space_prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back(replace_literal(" ", kSpace));
  return normalizers;
}

json decoders_of(const TokenizerVectors& vectors) {
  json decoders = {replace_literal(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (vectors.add_space_prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return decoders;
}

}  // namespace

void set_sentence_piece_frame(PipelineParts& parts, const TokenizerVectors& vectors, const json& post_processor) {
  const BpeModel& model = parts.model;
  json tokens = json::array(), pre_tokenizer;
  std::vector<std::string> symbols;  // in the normalised text: no added tokens, which would take the prefix with them
  for (const AddedToken& token : parts.added) {
    if (token.normalized) {
      symbols.push_back(token.content);
      continue;
    }
    tokens.push_back({{"id", token.id},
                      {"content", token.content},
                      {"special", token.special},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false}});
  }
  if (!symbols.empty()) {
    WholeNames names(model, symbols);
    const std::string whole = names.cut();
    if (!whole.empty()) {
      parts.no_frame = "the text " + quote(whole) + " would become the piece of that name beside user-defined pieces";
      return;
    }
    json steps = {isolate(any_of(symbols))};
    if (!names.pattern().empty()) steps.push_back(isolate(names.pattern()));
    pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", steps}};
  }
  json unknown = nullptr;
  if (model.unknown >= 0) unknown = model.pieces[static_cast<size_t>(model.unknown)];
  parts.frame = {{"version", "1.0"},
                 {"truncation", nullptr},
                 {"padding", nullptr},
                 {"added_tokens", tokens},
                 {"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers_of(vectors)}}},
                 {"pre_tokenizer", pre_tokenizer},
                 {"post_processor", post_processor},
                 {"decoder", {{"type", "Sequence"}, {"decoders", decoders_of(vectors)}}},
                 {"model",
                  {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", unknown},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", true},
                   {"byte_fallback", model.byte_fallback},
                   {"ignore_merges", !symbols.empty()}}}};
}

}  // namespace motet
