#include "motet/probe/options.h"

namespace motet {

const Words<LogitRounding::Per>& logit_scales() {
  static const Words<LogitRounding::Per> words{
      {"tensor", LogitRounding::Per::tensor}, {"head", LogitRounding::Per::head}, {"row", LogitRounding::Per::row}};
  return words;
}

}  // namespace motet
