#pragma once
#include "motet/checkpoints/companions.h"
#include "motet/text/tokenizer.h"
#include "motet/train/text_data.h"

namespace motet {

/// What a run's models take along: everything that lies beside the model of --init (null: the run has none); else what
/// lies beside the tokenizer, with the ids of the tokens that it calls bos, eos and pad. Prepared data that marks its
/// documents ends them with that token. tokenizer.json is always there; of a task, without a tokenizer, task.json
/// alone.
Companions run_companions(const RunConfig&, const Tokenizer*, const Checkpoint* init);

/// load_text_data, with examples in the form of what the run's models take along.
TextData load_run_data(const RunConfig&, std::shared_ptr<const Tokenizer>, const Checkpoint* init);

}  // namespace motet
