#pragma once
#include "motet/tasks/episodes.h"
#include "motet/train/text_data.h"

// What a task needs of a training: episodes in place of a text, and a model that can read its tokens.
namespace motet {

/// Episodes for training, those of a seed, and tests for validation. Without a tokenizer: ids mean what the task says.
TextData task_data(const std::shared_ptr<const Task>&, const std::string& name, uint64_t episodes, uint64_t seed);

/// Of a run: data.task, without end, from the seed train.data_seed + 1. Throws UsageError for the seed of the tests.
TextData task_data(const RunConfig&);

/// The options of a model of composite tokens: an embedding as wide as they have parts, which a projection follows.
/// Throws UsageError for another embedding_size than 0 and that.
void fit_to_task(ModelOptions&, const Task&);

/// The parameters that do not learn: of composite tokens the embedding, which is the sum of their parts.
std::vector<std::string> fixed_parameters(const Task&);

/// Gives those their values in a model that begins, and freezes them.
void fix_embedding(ModelImpl&, const Task&, int64_t seed);

}  // namespace motet
