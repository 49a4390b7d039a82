#include "motet/verify/greedy.h"

namespace motet {
namespace {

void append(Tensor& all, const Tensor& more) {
  if (more.defined()) all = all.defined() ? at::cat({all, more}, 1) : more;
}

void append(KeyMix& all, const KeyMix& more) {
  append(all.down_BSRH, more.down_BSRH);
  append(all.up_BSRH, more.up_BSRH);
  append(all.gate_BSH, more.gate_BSH);
  append(all.full_BSHH, more.full_BSHH);
}

void append(Keys& all, const Keys& more) {
  append(all.k_BSGD, more.k_BSGD);
  append(all.v_BSGE, more.v_BSGE);
  append(all.pre, more.pre);
  append(all.post, more.post);
}

// One layer over tokens begin..end with the keys of all before.
Tensor layer_output(Block& block, const Tensor& x, int64_t begin, int64_t end, Keys& stored) {
  Mechanism& mechanism = *block->self_attn;
  const Tensor normed = block->input_layernorm(x);
  const Positions at = Positions::range(begin, end, end), all = Positions::range(0, end, end);
  append(stored, mechanism.keys(normed, at));
  Attention attention = mechanism.attention(at, all);
  // A released window shows the prompt one key more than a ring of `window` keys can hold afterwards.
  if (begin > 0 && attention.visibility.window > 0) attention.visibility.window = block->window();
  const Attended attended = composed_attention(mechanism.queries(normed, at), stored, attention);
  return block->after(x, mechanism.finish(attended.out_BTHE, normed));
}

void choose(Continuation& made, const Tensor& logits_V) {
  made.logits.push_back(logits_V);
  made.ids.push_back(logits_V.argmax().item<int64_t>());
}

}  // namespace

Continuation recomputed(ModelImpl& model, const Tensor& prompt, int64_t new_tokens) {
  at::NoGradGuard no_grad;
  Continuation made;
  Tensor ids = prompt.unsqueeze(0);
  for (int64_t i = 0; i < new_tokens; ++i) {
    choose(made, model.forward(ids)[0][-1]);
    ids = at::cat({ids, at::full({1, 1}, made.ids.back(), at::kLong)}, 1);
  }
  return made;
}

Continuation cached(ModelImpl& model, const Tensor& prompt, int64_t new_tokens) {
  at::NoGradGuard no_grad;
  Continuation made;
  std::vector<Block> blocks = model.blocks();
  std::vector<Keys> stored(blocks.size());
  Tensor ids = prompt.unsqueeze(0);
  int64_t begin = 0;
  for (int64_t i = 0; i < new_tokens; ++i) {
    const int64_t end = begin + ids.size(1);
    Tensor x = model.embedded(ids);
    for (size_t layer = 0; layer < blocks.size(); ++layer)
      x = layer_output(blocks[layer], x, begin, end, stored[layer]);
    choose(made, model.logits(model.normed(x))[0][-1]);
    ids = at::full({1, 1}, made.ids.back(), at::kLong);
    begin = end;
  }
  return made;
}

}  // namespace motet
