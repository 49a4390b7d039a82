#pragma once
#include "motet/attention/cuda/problem.h"
#include "motet/cuda/numbers.h"

// A problem as a kernel is handed it: by value, without anything that lies on the host.
namespace motet::cuda {

inline constexpr int kMaxHeads = 64;

struct Mix {
  bool identity = false, any = false;
  bool in_vectors = false;  // rows of heads of every part are vectors of 8 numbers at multiples of 16 bytes
  int in = 0, out = 0, query_rank = 0, key_rank = 0;
  plain::MixTensor part[kNumMixParts];
};

constexpr int64_t kMostStoredHeads = 256;  // a byte tells one

struct Args {
  int B, T, S, D, E, score_heads, softmax_heads, output_heads, key_heads, value_heads;
  plain::Operand q, k, v, dout;
  uint8_t key_of[kMaxHeads], value_of[kMaxHeads];
  Mix pre, post;
  plain::Pairs pairs;
  float scale;
  bool causal;
  int window;
  const int64_t *query_start, *key_begin, *key_end, *documents;
};

inline Mix mix_of(const plain::HeadMix& from, int64_t in, int64_t out) {
  Mix to;
  to.identity = from.identity, to.any = from.any_part();
  to.in = static_cast<int>(in), to.out = static_cast<int>(out);
  to.in_vectors = in % kVector == 0 && out % kVector == 0;
  for (const plain::MixTensor& part : from.part)
    to.in_vectors &= holds_vectors(part.data) && part.batch_stride % kVector == 0 && part.row_stride % kVector == 0;
  if (from.has(kQueryDown)) to.query_rank = static_cast<int>(from.query_rank);
  if (from.has(kKeyDown)) to.key_rank = static_cast<int>(from.key_rank);
  std::copy(from.part.begin(), from.part.end(), to.part);
  return to;
}

inline Args args_of(const plain::Problem& p) {
  Args a{};
  const auto number = [](int64_t x) { return static_cast<int>(x); };
  a.B = number(p.B), a.T = number(p.T), a.S = number(p.S), a.D = number(p.D), a.E = number(p.E);
  a.score_heads = number(p.score_heads), a.softmax_heads = number(p.softmax_heads);
  a.output_heads = number(p.output_heads), a.key_heads = number(p.key_heads), a.value_heads = number(p.value_heads);
  a.q = p.q, a.k = p.k, a.v = p.v;
  std::copy(p.key_of.begin(), p.key_of.end(), a.key_of);
  std::copy(p.value_of.begin(), p.value_of.end(), a.value_of);
  a.pre = mix_of(p.pre, p.score_heads, p.softmax_heads);
  a.post = mix_of(p.post, p.softmax_heads, p.output_heads);
  a.pairs = p.pairs;
  a.scale = static_cast<float>(p.scale);
  a.causal = p.causal, a.window = number(std::min<int64_t>(p.window, INT32_MAX / 2));  // so many keys there are not
  a.query_start = p.query_start, a.key_begin = p.key_begin, a.key_end = p.key_end, a.documents = p.documents;
  return a;
}

}  // namespace motet::cuda
