#include "motet/formats/shards.h"

#include <algorithm>
#include <filesystem>

#include "motet/core/error.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

using nlohmann::json;

// File -> the tensors that the index says it holds.
std::map<std::string, std::vector<std::string>> shards_of(const json& index, const std::string& path) {
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    fail(path, ": want an object with 'weight_map', an object of tensor and file names");
  for (const auto& item : index.items())
    if (item.key() != "weight_map" && item.key() != "metadata")
      fail(path, ": ", unknown_name("key", item.key(), {"metadata", "weight_map"}));
  if (index.contains("metadata") && !index["metadata"].is_object()) fail(path, ": metadata is no object");
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() || !is_plain_file_name(file.get<std::string>()))
      fail(path, ": tensor ", quote(tensor), " is in ", quote(file.is_string() ? file.get<std::string>() : file.dump()),
           ", want the plain name of a file in the same folder");
    shards[file.get<std::string>()].push_back(tensor);
  }
  if (shards.empty()) fail(path, ": weight_map names no tensor");
  return shards;
}

}  // namespace

bool is_plain_file_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name[0] == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != '/' && c != '\\' && c != ':' && c != 0x7F;
  });
}

SafetensorsShards::SafetensorsShards(const std::string& index_path) {
  const auto folder = std::filesystem::path(index_path).parent_path();
  for (const auto& [name, tensors] : shards_of(read_json(index_path), index_path)) {
    const std::string path = (folder / name).string();
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    const SafetensorsFile& file = *files_.back();
    for (const std::string& tensor : tensors) {
      const TensorView* view = file.find(tensor);
      if (!view) fail(path, ": tensor ", quote(tensor), ", which ", index_path, " puts here, is missing");
      tensors_.push_back(*view);
    }
    if (file.tensors().size() == tensors.size()) continue;
    for (const TensorView& view : file.tensors())
      if (std::find(tensors.begin(), tensors.end(), view.name) == tensors.end())
        fail(path, ": tensor ", quote(view.name), " is not in the shard's part of ", index_path);
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
}

const TensorView* SafetensorsShards::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace motet
