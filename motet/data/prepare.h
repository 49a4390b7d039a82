// Texts to token shards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "motet/data/documents.h"
#include "motet/data/manifest.h"

namespace motet {

struct PrepareOptions {
  std::vector<std::string> inputs, validation_inputs;
  DocumentOptions documents;
  std::string folder;
  uint64_t shard_tokens = 100'000'000;  // of each shard but the last
  double validation = 0;                // every 1/x-th document is kept for validation; 0: none
  std::string document_token = "auto";  // stands before each document: a token, "none", or "auto": the tokenizer's own
  int threads = 1;
};

// Writes options.folder: tokenizer.json, shards, and data.json once all is there. Memory does not grow with the texts,
// the result does not depend on the threads. When it ends early, whole shards stay, and the same call continues behind
// them with the same result. Throws Error: what DocumentReader says, a full disk, texts without tokens, texts that
// changed since the beginning; UsageError: a folder with something else, another call's beginning, or complete data;
// Interrupted. All name what is wrong in one line.
Manifest prepare_data(std::shared_ptr<const Tokenizer> tokenizer, const PrepareOptions& options);

}  // namespace motet
