// A model's tensors in several safetensors files that an index names.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "motet/formats/safetensors.h"

namespace motet {

// `<name>.safetensors.index.json` and its shards, mapped; nothing of a tensor is read. Throws Error in one line for
// everything SafetensorsFile refuses and for an index that is no {"metadata": {...}, "weight_map": {tensor: file}}, a
// shard whose name is not plain or not in the index's folder, a tensor that its shard lacks, a tensor of a shard that
// the index does not name or puts elsewhere.
class SafetensorsShards {
 public:
  explicit SafetensorsShards(const std::string& index_path);

  // In the order of their names. The views live as long as this object.
  const std::vector<TensorView>& tensors() const { return tensors_; }

  // Null when there is none of the name.
  const TensorView* find(std::string_view name) const;

  size_t num_files() const { return files_.size(); }

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

// Whether a name from outside is that of a file in a folder: no separators, no "..", no control characters, not hidden.
bool is_plain_file_name(std::string_view name);

}  // namespace motet
