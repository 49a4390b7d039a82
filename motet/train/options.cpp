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
      {"context", &T::context, {1, 1e7}, "tokens of a training example, and the model's context"},
      {"batch_size", &T::batch_size, {1, 1e6}, "examples in a step"},
      {"learning_rate", &T::learning_rate, {0, 10}, "peak learning rate of AdamW"},
      {"final_learning_rate", &T::final_learning_rate, {0, 1}, "last learning rate as a part of the peak (cosine)"},
      {"warmup", &T::warmup, {0, 1}, "part of the budget in which the learning rate rises"},
      {"weight_decay",
       &T::weight_decay,
       {0, 10},
       "decay of matrices; norms, biases, gates, lambda and mixes have none"},
      {"beta1", &T::beta1, {0, 0.999999}, "decay of the first moment"},
      {"beta2", &T::beta2, {0, 0.999999}, "decay of the second moment"},
      {"epsilon", &T::epsilon, {0, 1}, "epsilon of AdamW"},
      {"clip", &T::clip, {0, 1e6}, "largest norm of the gradient; 0 = no limit"},
      {"dtype", &T::dtype, train_dtypes(), "bfloat16: autocast of the forward pass"},
      {"device", &T::device, "cpu, cuda or cuda:N; auto: a GPU if there is one"},
      {"eval_every", &T::eval_every, {0, 1e9}, "steps between evaluations; 0 = ten in a run"},
      {"eval_windows", &T::eval_windows, {1, 1e9}, "windows of the validation text, evenly spread, in each evaluation"},
      {"final_eval_windows",
       &T::final_eval_windows,
       {0, 1e9},
       "those in the last one; 0 = 500,000 tokens, or all there are"},
      {"checkpoint_every", &T::checkpoint_every, {0, 1e9}, "steps between checkpoints; 0 = only the last"},
      {"seed", &T::seed, {0, 1e15}, "seed of the first parameters"},
      {"data_seed", &T::data_seed, {0, 1e15}, "seed of the order of batches, the same for every model"},
  };
  return table;
}

}  // namespace motet
