#include "motet/train/options.h"

namespace motet {

const Fields<DataOptions>& data_options() {
  using D = DataOptions;
  static const Fields<D> table{
      {"tokenizer", &D::tokenizer, "chars, bytes, a tokenizer's file or folder; auto: the data's, or chars"},
      {"validation", &D::validation, {0.0001, 0.9}, "part of the text, from its end, that is kept for validation"},
      {"documents",
       &D::documents,
       {{"packed", Documents::packed}, {"apart", Documents::apart}},
       "of prepared data; apart: none sees another"},
  };
  return table;
}

const Fields<TrainOptions>& train_options() {
  using T = TrainOptions;
  static const Fields<T> table{
      {"steps", &T::steps, {0, 1e9}, "optimiser steps; one of steps, tokens and minutes is the budget"},
      {"tokens", &T::tokens, {0, 1e15}, "training tokens, rounded up to whole steps"},
      {"minutes", &T::minutes, {0, 1e6}, "time for training steps, without evaluation"},
      {"objective",
       &T::objective,
       {{"next", Objective::next}, {"masked", Objective::masked}},
       "what is learned: the next token, or 15 % of the tokens, which are hidden (wants model.causal = false)"},
      {"mask_whole_words", &T::mask_whole_words, "masked: words are hidden as a whole, and not token by token"},
      {"context", &T::context, {1, 1e7}, "tokens of a training example, and the model's context"},
      {"batch_size", &T::batch_size, {1, 1e6}, "examples in a step"},
      {"optimizer", &T::optimizer, optimizer_kinds(), "muon: of the matrices in the layers, adamw of the rest"},
      {"learning_rate", &T::learning_rate, {0, 10}, "peak learning rate"},
      {"muon_learning_rate", &T::muon_learning_rate, {0, 10}, "that of the matrices under muon"},
      {"schedule",
       &T::schedule,
       {{"cosine", Schedule::cosine},
        {"linear", Schedule::linear},
        {"wsd", Schedule::wsd},
        {"inverse_sqrt", Schedule::inverse_sqrt},
        {"constant", Schedule::constant}},
       "of the learning rate after the warmup; wsd: the peak, and a fall at the end"},
      {"final_learning_rate",
       &T::final_learning_rate,
       {0, 1},
       "last learning rate of cosine, linear and wsd, as a part of the peak"},
      {"warmup", &T::warmup, {0, 1e9}, "part of the budget (below 1), or steps, in which the learning rate rises"},
      {"decay", &T::decay, {0, 1e9}, "wsd: part of the budget (below 1), or steps, of the fall"},
      {"decay_shape",
       &T::decay_shape,
       {{"linear", DecayShape::linear}, {"sqrt", DecayShape::sqrt}, {"cosine", DecayShape::cosine}},
       "wsd: shape of the fall"},
      {"weight_decay",
       &T::weight_decay,
       {0, 10},
       "decay of matrices; norms, biases, gates, lambda and mixes have none"},
      {"no_decay", &T::no_decay, "names between commas of parameters that do not decay either; '*' for anything"},
      {"beta1", &T::beta1, {0, 0.999999}, "decay of the first moment"},
      {"beta2", &T::beta2, {0, 0.999999}, "decay of the second moment"},
      {"epsilon", &T::epsilon, {0, 1}, "epsilon of adamw and adam"},
      {"momentum", &T::momentum, {0, 0.999999}, "that of sgd and muon"},
      {"clip", &T::clip, {0, 1e6}, "largest norm of the gradient; 0 = no limit"},
      {"label_smoothing", &T::label_smoothing, {0, 0.999}, "part of the target that is spread over all tokens"},
      {"z_loss", &T::z_loss, {0, 1}, "weight of the squared log of the softmax's sum, added to the loss"},
      {"dropout", &T::dropout, {0, 0.9}, "part of what attention and feed-forward add that is left out of a step"},
      {"average", &T::average, "weights that are averaged and saved too: ema:0.999, or last:5 checkpoints"},
      {"skip_outliers",
       &T::skip_outliers,
       {0, 1e6},
       "leaves out steps whose loss or gradient is so many deviations above the last 128; 0 = none"},
      {"dtype", &T::dtype, train_dtypes(), "bfloat16, float16: autocast of the forward pass"},
      {"device", &T::device, "cpu, cuda or cuda:N; auto: a GPU if there is one"},
      {"micro_batch_size", &T::micro_batch_size, {0, 1e6}, "examples at once, to save memory; 0 = the whole batch"},
      {"loss_rows", &T::loss_rows, {0, 1e9}, "tokens whose logits are held at once; 0 = all"},
      {"recompute",
       &T::recompute,
       {{"none", Recompute::none}, {"block", Recompute::block}},
       "block: the backward pass computes each layer again, to save memory"},
      {"eval_every", &T::eval_every, {0, 1e9}, "steps between evaluations; 0 = ten in a run"},
      {"eval_windows", &T::eval_windows, {1, 1e9}, "windows of the validation text, evenly spread, in each evaluation"},
      {"final_eval_windows",
       &T::final_eval_windows,
       {0, 1e9},
       "those in the last one; 0 = 500,000 tokens, or all there are"},
      {"diagnose_every",
       &T::diagnose_every,
       {0, 1e9},
       "steps between looks at attention weights and the sizes of updates; 0 = never"},
      {"checkpoint_every", &T::checkpoint_every, {0, 1e9}, "steps between checkpoints; 0 = ten in a run"},
      {"keep_last", &T::keep_last, {0, 1e9}, "newest checkpoints that stay; 0 = all"},
      {"keep_best", &T::keep_best, {0, 1e9}, "checkpoints of the lowest validation loss that stay too"},
      {"async_checkpoint", &T::async_checkpoint, "a copy is written while the training goes on"},
      {"seed", &T::seed, {0, 1e15}, "seed of the first parameters"},
      {"data_seed", &T::data_seed, {0, 1e15}, "seed of the order of batches, the same for every model"},
  };
  return table;
}

}  // namespace motet
