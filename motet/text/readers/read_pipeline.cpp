#include <algorithm>
#include <map>

#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/text/pipeline/pipeline.h"
#include "motet/text/readers/json_fields.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr int64_t kMostIds = 1 << 24;

// Takes pieces one by one.
class VocabularyReader {
 public:
  VocabularyReader(BpeModel& model, size_t pieces, const std::string& where) : model_(model), where_(where) {
    model.vocabulary.reserve(pieces);
    model.pieces.resize(pieces);
  }

  void add(const std::string& piece, const json& value) {
    if (!value.is_number_integer() || value < 0 || value >= kMostIds)
      fail(where_, ": the id of ", quote(piece), " is ", quote(value.dump()), ", want 0 to ", kMostIds - 1);
    if (piece.empty()) return;
    const auto id = value.get<size_t>();
    if (id >= model_.pieces.size()) model_.pieces.resize(id + 1);
    std::string& name = model_.pieces[id];
    if (!name.empty()) fail(where_, ": the id ", id, " belongs to ", quote(name), " and to ", quote(piece));
    name = piece;
    const bool as_bytes = model_.start == BpeModel::Start::bytes;
    const bool found = !as_bytes || bytes_of_characters(piece, bytes_);
    Vocabulary& pieces = found ? model_.vocabulary : others_;
    if (!pieces.add(found && as_bytes ? bytes_ : piece, static_cast<int32_t>(id)))
      fail(where_, ": the piece ", quote(piece), " is there twice");
  }

  Vocabulary take_others() { return std::move(others_); }

 private:
  BpeModel& model_;
  const std::string& where_;
  std::string bytes_;
  Vocabulary others_;  // pieces that are no bytes
};

// Gives the pieces that are no bytes where the model begins with bytes.
Vocabulary read_vocabulary(BpeModel& model, const json& vocabulary, const PieceList* pieces, const std::string& where) {
  if (!vocabulary.is_object()) fail(where, ": model.vocab is no object");
  VocabularyReader reader(model, pieces ? pieces->size() : vocabulary.size(), where);
  if (pieces) {
    for (const auto& [piece, id] : *pieces) reader.add(piece, id);
  } else {
    for (const auto& [piece, id] : vocabulary.items()) reader.add(piece, id);
  }
  return reader.take_others();
}

// The two sides of a merge, "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> sides(const json& merge, size_t index, const std::string& where) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  if (merge.is_string()) {
    const std::string_view both = merge.get_ref<const std::string&>();
    const size_t space = both.find(' ');
    if (space != both.npos && both.find(' ', space + 1) == both.npos)
      return {both.substr(0, space), both.substr(space + 1)};
  }
  fail(where, ": merge ", index, " is ", quote(merge.dump().substr(0, 200)), ", want two pieces");
}

// Every piece of a merge is one of the vocabulary, as the reference wants it; `others` are those that are no bytes.
void read_merges(BpeModel& model, const Vocabulary& others, const json& merges, const std::string& where) {
  if (!merges.is_array()) fail(where, ": model.merges is no array");
  model.merges.reserve(merges.size());
  const bool as_bytes = model.start == BpeModel::Start::bytes;
  std::string bytes;
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right] = sides(merges[i], i, where);
    const auto id = [&](std::string_view piece) {
      const bool other = as_bytes && !bytes_of_characters(piece, bytes);
      const int32_t found = other ? others.find(piece) : model.id_of(as_bytes ? bytes : piece);
      if (found < 0)
        fail(where, ": merge ", i, " is ", quote(merges[i].dump().substr(0, 200)), ", and ", quote(piece),
             " is not in the vocabulary");
      return found;
    };
    const int32_t left_id = id(left), right_id = id(right), both = id(std::string(left).append(right));
    model.merges.set(left_id, right_id, {static_cast<uint32_t>(i), both});
  }
}

void read_model(BpeModel& model, const json& json, const PieceList* pieces, bool bytes, const std::string& where) {
  if (string_field(json, "type", "BPE", where) != "BPE")
    unsupported(where, "model", string_field(json, "type", "", where), {"BPE", "WordLevel of characters"});
  if (json.contains("dropout") && !json["dropout"].is_null() && json["dropout"] != 0.0) {
    fail(where, ": model.dropout is ", quote(json["dropout"].dump()), ", want null: ids must not be random");
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::string value = string_field(json, name, "", where);
    if (!value.empty()) fail(where, ": model.", name, " is ", quote(value), ", which is not supported");
  }
  model.start = bytes ? BpeModel::Start::bytes : BpeModel::Start::characters;
  model.byte_fallback = bool_field(json, "byte_fallback", false, where);
  model.fuse_unknown = bool_field(json, "fuse_unk", false, where);
  model.ignore_merges = bool_field(json, "ignore_merges", false, where);
  for (const char* name : {"vocab", "merges"}) {
    if (!json.contains(name)) fail(where, ": has no model.", name);
  }
  const Vocabulary others = read_vocabulary(model, json["vocab"], pieces, where);
  read_merges(model, others, json["merges"], where);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    const std::string key = bytes ? std::string(1, static_cast<char>(byte)) : name;
    model.byte_ids[static_cast<size_t>(byte)] = model.id_of(key);
  }
  const std::string unknown = string_field(json, "unk_token", "", where);
  if (unknown.empty()) return;
  const auto found = std::find(model.pieces.begin(), model.pieces.end(), unknown);
  if (found == model.pieces.end()) fail(where, ": model.unk_token ", quote(unknown), " is not in the vocabulary");
  model.unknown = static_cast<int32_t>(found - model.pieces.begin());
}

std::vector<AddedToken> read_added(const json& json, const std::string& where) {
  std::vector<AddedToken> out;
  if (!json.contains("added_tokens") || json["added_tokens"].is_null()) return out;
  for (const auto& token : array_field(json, "added_tokens", where)) {
    const std::string content = string_field(token, "content", "", where);
    if (content.empty()) continue;  // has no number in the reference either
    const int64_t id = integer_field(token, "id", -1, where);
    if (id < 0 || id >= kMostIds)
      fail(where, ": the added token ", quote(content), " has the id ", id, ", want 0 to ", kMostIds - 1);
    const bool special = bool_field(token, "special", false, where);
    out.push_back({.id = static_cast<int32_t>(id),
                   .content = content,
                   .special = special,
                   .single_word = bool_field(token, "single_word", false, where),
                   .lstrip = bool_field(token, "lstrip", false, where),
                   .rstrip = bool_field(token, "rstrip", false, where),
                   .normalized = bool_field(token, "normalized", !special, where)});
  }
  return out;
}

// The id of an added token as the reference has it: of one that is a piece of the model that piece's, of any other the
// next one, whatever the file says. One that fills a hole of the vocabulary, where the reference loses a piece, keeps
// it.
void number_added(PipelineParts& parts, const std::string& where) {
  std::string bytes;
  const std::vector<std::string>& pieces = parts.model.pieces;
  auto next = static_cast<int32_t>(pieces.size());
  std::map<std::string, int32_t> ids;
  std::string said;
  int64_t other = 0;
  for (AddedToken& token : parts.added) {
    const bool as_bytes = parts.model.start == BpeModel::Start::bytes,
               can_be_piece = !as_bytes || bytes_of_characters(token.content, bytes);
    const bool fills = static_cast<size_t>(token.id) < pieces.size() && pieces[static_cast<size_t>(token.id)].empty();
    const int32_t own = can_be_piece ? parts.model.id_of(as_bytes ? bytes : token.content) : -1;
    const int32_t id = own >= 0 ? own : fills ? token.id : ids.try_emplace(token.content, next).first->second;
    if (id != token.id && other++ == 0)
      said = text("the added token ", quote(token.content), " has the id ", id, " and not ", token.id);
    token.id = id;
    next = std::max(next, id + 1);
  }
  if (other > 1) said += text(" and so have ", other - 1, " more");
  if (other > 0) log_warn(text(where, ": ", said, ", as in the tokenizers package, which numbers them on"));
}

// An id has one meaning.
void check_added(const PipelineParts& parts, const std::string& where) {
  std::vector<std::string> names = parts.model.pieces;
  for (const AddedToken& token : parts.added) {
    const auto id = static_cast<size_t>(token.id);
    if (id >= names.size()) names.resize(id + 1);
    if (!names[id].empty() && names[id] != token.content) {
      fail(where, ": the id ", id, " belongs to ", quote(names[id]), " and to the added token ", quote(token.content));
    }
    names[id] = token.content;
  }
}

json member(const json& json, const char* name) { return json.contains(name) ? json[name] : nlohmann::json(); }

}  // namespace

std::unique_ptr<PipelineTokenizer> read_pipeline(const json& json, const std::string& where, const PieceList* pieces) {
  PipelineParts parts;
  parts.normalizers = read_normalizers(member(json, "normalizer"), where);
  parts.pre_tokenizers = read_pre_tokenizers(member(json, "pre_tokenizer"), where);
  parts.post_processor = read_post_processor(member(json, "post_processor"), where);
  parts.decoders = read_decoders(member(json, "decoder"), where);
  parts.added = read_added(json, where);
  read_model(parts.model, json["model"], pieces, parts.pre_tokenizers.bytes, where);
  number_added(parts, where);
  check_added(parts, where);
  if (parts.model.pieces.empty() && parts.added.empty()) fail(where, ": the vocabulary is empty");
  for (const auto& [name, value] : json.items()) {
    if (name != "model") parts.frame[name] = value;
  }
  for (const auto& [name, value] : json["model"].items()) {
    if (name != "vocab" && name != "merges") parts.frame["model"][name] = value;
  }
  return std::make_unique<PipelineTokenizer>(std::move(parts), where);
}

nlohmann::json PipelineTokenizer::to_json() const {
  const auto refuse = [](const std::string& why) {
    fail("tokenizer.json: this tokenizer cannot be written as one: ", why);
  };
  if (!parts_.no_frame.empty()) refuse(parts_.no_frame);
  nlohmann::json out = parts_.frame;
  const BpeModel& model = parts_.model;
  nlohmann::json vocabulary = nlohmann::json::object(), merges = nlohmann::json::array();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (!model.pieces[id].empty()) vocabulary[model.pieces[id]] = id;
  }
  const auto known = static_cast<int32_t>(model.pieces.size());
  for (const auto& [left, right, merge] : model.merges.sorted()) {
    if (left >= known || right >= known)
      refuse("a character of the piece " + quote(model.pieces[static_cast<size_t>(merge.symbol)]) + " is no piece");
    merges.push_back({model.pieces[static_cast<size_t>(left)], model.pieces[static_cast<size_t>(right)]});
  }
  out["model"]["vocab"] = std::move(vocabulary);
  out["model"]["merges"] = std::move(merges);
  return out;
}

}  // namespace motet
