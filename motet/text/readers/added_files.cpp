#include "motet/text/readers/added_files.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "motet/core/error.h"
#include "motet/formats/json.h"
#include "motet/text/readers/json_fields.h"

namespace motet {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json file_object(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return json::object();
  json value = read_json(path.string());
  if (!value.is_object()) fail(path.string(), ": want an object");
  return value;
}

// A token as it is written: its text, or an object that has it.
std::string content_of(const json& token) {
  if (token.is_string()) return token;
  return token.is_object() && token.contains("content") && token["content"].is_string() ? token["content"] : json("");
}

json added_token(int64_t id, const std::string& content, const json& flags, const std::string& where) {
  if (content.empty() || id < 0)
    fail(where, ": the added token ", quote(content), " has the id ", id, ", want a text and an id from 0");
  const bool special = bool_field(flags, "special", false, where);
  return {{"id", id},
          {"content", content},
          {"special", special},
          {"single_word", bool_field(flags, "single_word", false, where)},
          {"lstrip", bool_field(flags, "lstrip", false, where)},
          {"rstrip", bool_field(flags, "rstrip", false, where)},
          {"normalized", bool_field(flags, "normalized", !special, where)}};
}

std::set<std::string> names_with_a_role(const std::vector<json>& files) {
  std::set<std::string> out;
  for (const json& file : files) {
    for (const char* role : {"bos", "eos", "unk", "sep", "pad", "cls", "mask"})
      out.insert(content_of(file.value(text(role, "_token"), json())));
    for (const char* list : {"extra_special_tokens", "additional_special_tokens"})
      for (const json& token : file.value(list, json())) out.insert(content_of(token));
  }
  return out;
}

}  // namespace

AddedFiles read_added_files(const fs::path& folder) {
  const fs::path config = folder / "tokenizer_config.json";
  AddedFiles out{.config = file_object(config), .where = config.string(), .config_where = config.string()};
  std::map<int64_t, json> by_id;
  const json decoder = out.config.value("added_tokens_decoder", json());
  if (decoder.is_object()) {
    for (const auto& [key, flags] : decoder.items()) {
      int64_t id = -1;
      const auto read = std::from_chars(key.data(), key.data() + key.size(), id);
      if (read.ec != std::errc() || read.ptr != key.data() + key.size() || !flags.is_object())
        fail(out.where, ": added_tokens_decoder has ", quote(key), ", want ids and objects");
      by_id[id] = added_token(id, content_of(flags), flags, out.where);
    }
  } else {
    out.where = (folder / "added_tokens.json").string();
    const std::set<std::string> special =
        names_with_a_role({out.config, file_object(folder / "special_tokens_map.json")});
    const json list = file_object(folder / "added_tokens.json");
    for (const auto& [content, id] : list.items()) {
      if (!id.is_number_integer() || by_id.contains(id))
        fail(out.where, ": the id of ", quote(content), " is ", quote(id.dump()), ", want an integer of its own");
      by_id[id] = added_token(id, content, {{"special", special.contains(content)}}, out.where);
    }
  }
  for (const auto& [id, token] : by_id) out.tokens.push_back(token);
  return out;
}

TokenizerClass class_of_merges(const AddedFiles& added) {
  static const std::map<std::string, TokenizerClass> kClasses = {
      {"GPT2Tokenizer", {"gpt-2", nullptr, "<|endoftext|>", "<|endoftext|>"}},
      {"CodeGenTokenizer", {"gpt-2", nullptr, "<|endoftext|>", "<|endoftext|>"}},
      {"Qwen2Tokenizer", {"qwen2", {{"type", "NFC"}}, "", "<|endoftext|>"}},
  };
  const json given = added.config.value("tokenizer_class", json("GPT2Tokenizer"));
  std::string name = given.is_string() ? given.get<std::string>() : given.dump();
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const auto found = kClasses.find(name);
  if (found == kClasses.end())
    fail(added.config_where, ": vocab.json and merges.txt of tokenizer_class ", quote(name),
         " are not read, want GPT2Tokenizer, CodeGenTokenizer or Qwen2Tokenizer, or a tokenizer.json");
  if (bool_field(added.config, "add_prefix_space", false, added.config_where))
    fail(added.config_where, ": add_prefix_space is true, want false beside vocab.json, or a tokenizer.json");
  return found->second;
}

void set_tokens_around(TokenizerVectors& vectors, const AddedFiles& added, const TokenizerClass& of) {
  for (const auto& [role, otherwise, id] : {std::tuple("bos", of.bos, &vectors.bos), {"eos", of.eos, &vectors.eos}}) {
    if (!bool_field(added.config, text("add_", role, "_token").c_str(), false, added.config_where)) continue;
    std::string name = content_of(added.config.value(text(role, "_token"), json()));
    if (name.empty()) name = otherwise;
    if (name.empty()) continue;
    const auto found = std::ranges::find(vectors.tokens, name);
    if (found == vectors.tokens.end())
      fail(added.config_where, ": add_", role, "_token is true and ", role, "_token is ", quote(name),
           ", which is no piece");
    *id = static_cast<int32_t>(found - vectors.tokens.begin());
  }
}

std::unique_ptr<Tokenizer> with_added(const Tokenizer& tokenizer, const AddedFiles& added) {
  json value = tokenizer.to_json();
  const json& vocabulary = value["model"]["vocab"];
  std::map<int64_t, json> tokens;
  for (const json& token : value["added_tokens"]) tokens[token["id"]] = token;
  int64_t next = tokenizer.vocabulary_size();
  for (const json& token : added.tokens) {
    const int64_t id = token["id"];
    const std::string content = token["content"];
    const auto known = vocabulary.find(content);
    if (known != vocabulary.end() && *known != id)
      fail(added.where, ": the added token ", quote(content), " has the id ", id, ", and ", known->get<int64_t>(),
           " in the vocabulary");
    if (id < next && known == vocabulary.end())
      fail(added.where, ": the added token ", quote(content), " has the id ", id, ", which belongs to ",
           quote(tokenizer.piece(static_cast<int32_t>(id))));
    if (id > next)
      fail(added.where, ": the added token ", quote(content), " has the id ", id, ", want ", next, ", the next one");
    if (id == next) ++next;
    tokens[id] = token;
  }
  value["added_tokens"] = json::array();
  for (const auto& [id, token] : tokens) value["added_tokens"].push_back(token);
  return tokenizer_from_json(value, added.where);
}

std::unique_ptr<Tokenizer> sentence_piece_with_added(TokenizerVectors vectors, const std::string& where,
                                                     const AddedFiles& added) {
  const bool space = bool_field(added.config, "add_prefix_space", vectors.add_space_prefix, added.config_where);
  const bool always = bool_field(added.config, "legacy", false, added.config_where);
  json tokens = json::array();
  for (size_t id = 0; id < vectors.types.size(); ++id) {
    int32_t& type = vectors.types[id];
    const bool user_defined = type == TokenizerVectors::user_defined;
    if (!user_defined && type != TokenizerVectors::control && type != TokenizerVectors::unknown) continue;
    const json flags{{"special", !user_defined}, {"normalized", false}};
    tokens.push_back(added_token(static_cast<int64_t>(id), vectors.tokens[id], flags, where));
    if (user_defined) type = TokenizerVectors::control;  // no text becomes one by merging
  }
  vectors.add_space_prefix = vectors.parse_control = false;
  json value = tokenizer_from_vectors(vectors, where)->to_json();
  value["added_tokens"] = tokens;
  value["pre_tokenizer"] = {{"type", "Metaspace"},
                            {"replacement", "\u2581"},
                            {"prepend_scheme", !space   ? "never"
                                               : always ? "always"
                                                        : "first"},
                            {"split", false}};
  if (space) value["decoder"]["decoders"].push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return with_added(*tokenizer_from_json(value, where), added);
}

}  // namespace motet
