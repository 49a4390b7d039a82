// data.json of a folder that `motet data prepare` made.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace motet {

inline constexpr const char* kManifestFile = "data.json";

// What was read, in order.
struct InputRecord {
  std::string path;
  uint64_t bytes = 0, hash = 0;  // of the text, unpacked
};

struct ShardRecord {
  std::string file;
  uint64_t tokens = 0, documents = 0, hash = 0;
};

struct SplitRecord {
  uint64_t tokens = 0, documents = 0;  // sums over the shards
  uint64_t text_bytes = 0;             // that the tokens stand for, without document tokens
  std::vector<ShardRecord> shards;
};

struct Manifest {
  std::string tokenizer_file;  // in the folder
  uint64_t tokenizer_hash = 0;
  uint64_t vocabulary = 0;
  std::optional<int64_t> document_token;  // stands before each document
  std::vector<InputRecord> inputs;
  SplitRecord train, validation;
};

nlohmann::json manifest_json(const Manifest& manifest);

// Throws Error in one line that begins with `where`: a member that is missing, unknown, of the wrong type or out of
// range, a file name that is not plain, sums that are wrong.
Manifest parse_manifest(const nlohmann::json& json, const std::string& where);

}  // namespace motet
