// Folders of token shards: those of `motet data prepare`, and llm.c's .bin files.
#pragma once

#include <optional>

#include "motet/data/manifest.h"
#include "motet/data/tokens.h"

namespace motet {

struct PreparedData {
  std::string name;       // for tables: the path
  std::string tokenizer;  // path of the folder's tokenizer; empty when it has none (llm.c)
  std::shared_ptr<const TokenSequence> train, validation;  // null when the part has no tokens
  std::optional<Manifest> manifest;                        // none for llm.c's
};

// Whether the path is data that open_prepared_data reads: a folder with data.json, one of llm.c's shards, or a folder
// with some.
bool is_prepared_data(const std::string& path);

// Maps the shards; nothing of the tokens is read. Of several files of llm.c those with "val" between underscores in
// their names are for validation. Throws Error in one line that names the file: what TokenShard and
// parse_manifest refuse, a shard that is not the one of the manifest, a tokenizer with another hash.
PreparedData open_prepared_data(const std::string& path);

// Reads all shards too and compares their checksums. Throws as open_prepared_data does; Interrupted.
void check_prepared_data(const PreparedData& data);

}  // namespace motet
