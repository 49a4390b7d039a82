#pragma once
#include "motet/core/words.h"

namespace motet {

/// What is equal between the models of a comparison.
enum class Match { parameters, flops, none };
inline const Words<Match>& match_words() {
  static const Words<Match> all{{"parameters", Match::parameters}, {"flops", Match::flops}, {"none", Match::none}};
  return all;
}

}  // namespace motet
