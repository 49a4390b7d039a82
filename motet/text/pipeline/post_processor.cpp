#include "motet/text/pipeline/post_processor.h"

#include "motet/core/error.h"
#include "motet/text/readers/json_fields.h"

namespace motet {
namespace {

using nlohmann::json;

std::vector<int32_t> special_ids(const json& json, const std::string& name, const std::string& where) {
  std::vector<int32_t> out;
  if (json.contains("special_tokens") && json["special_tokens"].is_object() && json["special_tokens"].contains(name)) {
    for (const auto& id : array_field(json["special_tokens"][name], "ids", where)) {
      if (!id.is_number_integer() || id < 0 || id > INT32_MAX) fail(where, ": ", quote(name), " has a wrong id");
      out.push_back(id.get<int32_t>());
    }
    return out;
  }
  fail(where, ": the template's ", quote(name), " is not among its special_tokens");
}

void read_template(PostProcessor& out, const json& json, const std::string& where) {
  bool text_seen = false;
  for (const auto& item : array_field(json, "single", where)) {
    if (item.is_object() && item.contains("Sequence")) {
      if (text_seen) fail(where, ": the template has its text twice");
      text_seen = true;
    } else if (item.is_object() && item.contains("SpecialToken")) {
      const std::string name = string_field(item["SpecialToken"], "id", "", where);
      auto& side = text_seen ? out.after : out.before;
      for (const int32_t id : special_ids(json, name, where)) side.push_back(id);
    } else {
      fail(where, ": the template has an item that is neither Sequence nor SpecialToken");
    }
  }
  if (!text_seen) fail(where, ": the template has no Sequence");
}

void read_into(PostProcessor& out, const json& json, const std::string& where, int depth) {
  const std::string type = type_field(json, where);
  if (type == "Sequence" && depth < 16) {
    for (const auto& inner : array_field(json, "processors", where)) read_into(out, inner, where, depth + 1);
  } else if (type == "ByteLevel") {
    out.trim_offsets = bool_field(json, "trim_offsets", true, where);
    out.prefix_space = bool_field(json, "add_prefix_space", true, where);
  } else if (type == "TemplateProcessing") {
    read_template(out, json, where);
  } else {
    unsupported(where, "post-processor", type, {"ByteLevel", "TemplateProcessing", "Sequence"});
  }
}

}  // namespace

PostProcessor read_post_processor(const json& json, const std::string& where) {
  PostProcessor out;
  if (!json.is_null()) read_into(out, json, where + ": post_processor", 0);
  return out;
}

}  // namespace motet
