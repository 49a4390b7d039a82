#pragma once
#include "motet/core/words.h"

namespace motet {

/// Of products of float32 by tiles (AMX), each number in parts of bfloat16. highest: six products of three parts, with
/// at most the error of float32 products. high: three products of two parts, off by at most 2^-15 of each term.
enum class Precision : uint8_t { highest, high };
inline const Words<Precision>& precisions() {
  static const Words<Precision> all{{"highest", Precision::highest}, {"high", Precision::high}};
  return all;
}

}  // namespace motet
