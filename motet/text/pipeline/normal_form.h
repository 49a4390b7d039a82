// Unicode normalisation as the `tokenizers` package does it: the tables of Unicode 11, and its alignments.
#pragma once

#include "motet/text/pipeline/aligned_text.h"

namespace motet {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

void to_normal_form(AlignedText& text, NormalForm form);

}  // namespace motet
