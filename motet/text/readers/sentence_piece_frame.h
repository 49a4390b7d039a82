// What a tokenizer.json says of a SentencePiece tokenizer.
#pragma once

#include "motet/text/pipeline/pipeline.h"
#include "motet/text/readers/vectors.h"

namespace motet {

// Sets parts.frame, or parts.no_frame where the format has no words for the ids of every text. The model and the added
// tokens of the parts must be complete.
void set_sentence_piece_frame(PipelineParts& parts, const TokenizerVectors& vectors,
                              const nlohmann::json& post_processor);

}  // namespace motet
