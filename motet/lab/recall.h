#pragma once
#include <span>

#include "motet/data/tokens.h"
#include "motet/models/model.h"

namespace motet {

/// Those of a text's n-grams that occur most often. Torch-free.
class FrequentNgrams {
 public:
  /// Of all different n-grams of the tokens the part (0 to 1) that occurs most often; of those that occur as often as
  /// the first one behind the part none.
  FrequentNgrams(const TokenSequence& tokens, int64_t n, double part);

  int64_t n() const { return n_; }
  /// Of n tokens.
  bool contains(std::span<const int64_t> ngram) const;

 private:
  int64_t n_;
  std::vector<uint64_t> hashes_;  // ascending
};

/// By token of a window: whether it ends an n-gram that ended earlier in the window too, and that is not frequent in
/// the training text: what is recalled, not known (AR-Hit, arXiv:2312.04927). Torch-free.
std::vector<bool> recalled(std::span<const int64_t> window, const FrequentNgrams&);

/// What recall is asked about.
struct Recall {
  int64_t n = 8;             // tokens of an n-gram
  int64_t tokens = 131'072;  // of the validation text
  double frequent = 0.1;     // the part of the training text's n-grams that does not count
};
/// Of {"n": 8, "tokens": N, "frequent": 0.1}. Throws UsageError.
Recall read_recall(const nlohmann::json& given);
/// Throws UsageError when the tokens do not fill a window of the model, or the window no n-gram and its return.
void check_recall(const ModelConfig&, const Recall&);

/// Of the first tokens, in windows of the model's context side by side as validation has them:
///   loss{recall}, loss{rest}   nats of a token that is recalled (of the first kind NaN without any), and of the others
///   recalled                   the part of tokens that is
std::map<std::string, double> recall_losses(ModelImpl&, const TokenSequence& train, const TokenSequence& validation,
                                            const Recall&);
std::vector<std::string> recall_metrics();  // their names

}  // namespace motet
