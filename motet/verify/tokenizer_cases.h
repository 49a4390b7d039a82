#pragma once
#include <string>
#include <vector>

namespace motet {

/// What one tokenizer file made of the recorded cases of its name.
struct TokenizerReport {
  std::string name, file;
  int64_t cases = 0, wrong_ids = 0, wrong_text = 0, wrong_offsets = 0;
  std::string first_wrong;  // one line; empty when all agree

  bool passed() const { return wrong_ids + wrong_text + wrong_offsets == 0; }
};

/// Every file of `tokenizers` that begins with the name of a case of FOLDER/cases.jsonl (or of that file itself) and
/// that load_tokenizer reads: ids and decoded text must be the recorded ones; offsets too where they are recorded, and
/// the text of a stream must be valid UTF-8 at every moment. Throws Error for broken cases, names without a file and a
/// folder without cases.
std::vector<TokenizerReport> verify_tokenizers(const std::string& folder, const std::string& tokenizers);

}  // namespace motet
