#include "motet/eval/multiple_choice/item_file.h"

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

using nlohmann::json;

// Whole lines; what follows the last line break was cut by an interruption.
std::vector<std::string_view> whole_lines(std::string_view bytes) {
  std::vector<std::string_view> out;
  for (size_t end = bytes.find('\n'); end != bytes.npos; end = bytes.find('\n')) {
    out.push_back(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
  }
  return out;
}

void check_head(const json& have, const json& want, const std::string& where) {
  if (!have.is_object() || !have.contains("task")) fail(where, ": holds no items of motet eval, want another --items");
  for (const auto& [key, value] : want.items())
    if (!have.contains(key) || have[key] != value)
      fail(where, ": belongs to another evaluation (", key, " is ", have.contains(key) ? have[key].dump() : "missing",
           " and now ", value.dump(), "), want another --items");
}

}  // namespace

ItemFile::ItemFile(const std::filesystem::path& path, const json& head, const std::vector<size_t>& batch_sizes,
                   const std::function<bool(size_t, const json&)>& is_line) {
  if (path.empty()) return;
  const std::string where = path.string();
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path))
    fail(where, ": is no file, want another --items");
  const std::string bytes = std::filesystem::exists(path) ? read_file(path) : "";
  std::vector<std::string_view> lines = whole_lines(bytes);
  std::vector<json> items;
  if (!bytes.empty() && !bytes.starts_with('{')) fail(where, ": holds no items of motet eval, want another --items");
  if (!lines.empty()) {
    check_head(parse_json(lines[0], where + ":1"), head, where);
    for (size_t i = 1; i < lines.size(); ++i) {
      const json line = parse_json(lines[i], text(where, ":", i + 1));
      if (!is_line(i - 1, line))
        fail(where, ":", i + 1, ": is no item of this evaluation at its place, want another --items");
      items.push_back(line);
    }
  }
  size_t whole = 0;
  for (const size_t size : batch_sizes) {
    if (whole + size > items.size()) break;
    whole += size;
  }
  done_.assign(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(whole));
  std::string kept = lines.empty() ? head.dump() + "\n" : "";
  for (size_t i = 0; i < lines.size() && i <= whole; ++i) kept += std::string(lines[i]) + "\n";
  if (kept != bytes) write_file_atomic(path, kept);
  writer_.emplace(path);
}

void ItemFile::append(const std::vector<json>& batch) {
  for (const json& line : batch)
    if (writer_) writer_->write(line);
}

}  // namespace motet
