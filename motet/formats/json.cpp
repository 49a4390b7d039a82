#include "motet/formats/json.h"

#include <algorithm>
#include <vector>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/utf8.h"
#include "motet/formats/json_members.h"

namespace motet {
namespace {

using nlohmann::json;

// "line 3, column 7" of the byte at `offset`.
std::string place(std::string_view bytes, size_t offset) {
  const std::string_view before = bytes.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t break_at = before.rfind('\n');
  const size_t column = break_at == std::string_view::npos ? offset + 1 : offset - break_at;
  return text("line ", line, ", column ", column);
}

// Builds the value from the parser's events, so that depth and names are checked before anything is stored.
class Builder : public nlohmann::json_sax<json> {
 public:
  Builder(std::string_view bytes, const std::string& where, size_t max_depth = kJsonDepth)
      : bytes_(bytes), where_(where), max_depth_(max_depth) {}

  // The members of the object at the path are given away.
  void give(const std::vector<std::string>& path, const TakeJsonMember& take) {
    path_ = path;
    take_ = take;
  }

  json root;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (stack_.size() == given_depth_) {
      name_ = std::move(name);
      return true;
    }
    if (stack_.size() <= path_.size() && on_path_ >= stack_.size() - 1)
      on_path_ = name == path_[stack_.size() - 1] ? stack_.size() : stack_.size() - 1;
    auto& members = stack_.back()->get_ref<json::object_t&>();
    const auto [member, added] = members.try_emplace(std::move(name));
    if (!added) fail(where_, ": the name ", quote(member->first), " appears twice in one object");
    member_ = &member->second;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    // nlohmann's out_of_range 406 is the only error here that is not about syntax.
    if (error.id == 406) fail(where_, ": a number is too large at ", place(bytes_, position));
    const size_t offset = std::min(bytes_.size(), position == 0 ? 0 : position - 1);
    if (offset == bytes_.size() || position > bytes_.size())
      fail(where_, ": JSON ends too early, after ", bytes_.size(), " bytes");
    fail(where_, ": wrong JSON at ", place(bytes_, offset));
  }

 private:
  json* store(json value) {
    if (stack_.empty()) {
      root = std::move(value);
      return &root;
    }
    json& parent = *stack_.back();
    if (stack_.size() == given_depth_) return &(given_ = std::move(value));
    if (parent.is_object()) return &(*member_ = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }

  bool add(json value) {
    store(std::move(value));
    if (stack_.size() == given_depth_) take_(std::move(name_), std::move(given_));
    return true;
  }

  // A parent does not move while its children are open: only the innermost container grows.
  bool open(json container) {
    if (stack_.size() == max_depth_) fail(where_, ": JSON is more than ", max_depth_, " levels deep");
    const bool object = container.is_object(), inside = stack_.size() == path_.size() && on_path_ == path_.size();
    stack_.push_back(store(std::move(container)));
    if (object && inside && !path_.empty() && given_depth_ == kNone) given_depth_ = stack_.size();
    return true;
  }

  bool close() {
    if (stack_.size() == given_depth_) given_depth_ = kNone;
    stack_.pop_back();
    if (stack_.size() == given_depth_) take_(std::move(name_), std::move(given_));
    return true;
  }

  std::string_view bytes_;
  const std::string& where_;
  size_t max_depth_;
  std::vector<json*> stack_;
  json* member_ = nullptr;  // of the innermost object, whose value comes next

  static constexpr size_t kNone = SIZE_MAX;
  std::vector<std::string> path_;  // of the object whose members are given away; empty: none is
  TakeJsonMember take_;
  size_t on_path_ = 0;          // names of the path that lead to where the parser stands
  size_t given_depth_ = kNone;  // of that object while the parser is inside
  std::string name_;
  json given_;  // the member that is being read
};

json built(Builder& builder, std::string_view bytes, const std::string& where, size_t max_bytes) {
  if (bytes.size() > max_bytes) fail(where, ": ", bytes.size(), " bytes of JSON, want at most ", max_bytes);
  const size_t invalid = utf8_invalid_at(bytes);
  if (invalid != std::string_view::npos) fail(where, ": no UTF-8 at ", place(bytes, invalid));
  json::sax_parse(bytes.begin(), bytes.end(), &builder);
  return std::move(builder.root);
}

}  // namespace

json parse_json(std::string_view bytes, const std::string& where, size_t max_bytes, size_t max_depth) {
  Builder builder(bytes, where, max_depth);
  return built(builder, bytes, where, max_bytes);
}

json parse_json_members(std::string_view bytes, const std::string& where, const std::vector<std::string>& path,
                        const TakeJsonMember& take) {
  Builder builder(bytes, where);
  builder.give(path, take);
  return built(builder, bytes, where, kJsonBytes);
}

json read_json(const std::string& path, size_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path, max_bytes);
}

}  // namespace motet
