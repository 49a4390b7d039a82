#pragma once
#include "motet/core/words.h"

namespace motet {

/// How the numbers of a cache are stored: as the model computes, in 16 bits, or in 8 bits with a scale for each row of
/// a head.
enum class CacheType { model, bfloat16, float16, int8 };
inline const Words<CacheType>& cache_types() {
  static const Words<CacheType> all{{"model", CacheType::model},
                                    {"bfloat16", CacheType::bfloat16},
                                    {"float16", CacheType::float16},
                                    {"int8", CacheType::int8}};
  return all;
}

}  // namespace motet
