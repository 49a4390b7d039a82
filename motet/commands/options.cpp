#include "motet/commands/options.h"

namespace motet {
namespace {

constexpr const char* kDevice = "cpu, cuda or cuda:N; auto: a GPU if there is one";
constexpr const char* kWeights =
    "how the model's matrices are kept; auto: in the 8 bits, on the CPU the 16 bits too, in which the folder has them, "
    "else float32";

constexpr const char* kPrecision =
    "high: attention and linear layers multiply float32 in three products of AMX tiles (wants AMX)";

const Words<std::optional<WeightType>>& weight_words() {
  static const Words<std::optional<WeightType>> all = [] {
    Words<std::optional<WeightType>> words{{"auto", std::nullopt}};
    for (const auto& [word, type] : weight_types()) words.emplace_back(word, type);
    return words;
  }();
  return all;
}

}  // namespace

const Fields<CompareRequest>& compare_options() {
  using C = CompareRequest;
  static const Fields<C> table{
      {"mechanisms", &C::mechanisms, "names between commas; by default the main seven"},
      {"sweep", &C::sweep, "the first seed chooses each mechanism's value of it, the other seeds are reported"},
      {"sizes", &C::sizes, "WIDTH, WIDTHxLAYERS or WIDTHxLAYERSxHEADS between commas: a power law of the losses"},
      {"seeds", &C::seeds, {1, 1000}, "models of each mechanism; five give a verdict"},
      {"margin", &C::margin, {0, 100}, "nats beyond which fewer than five seeds give a verdict"},
      {"match", &C::match, match_words(), "what is equal between the models"},
      {"jobs",
       &C::jobs,
       {0, 1024},
       "models trained at once; 0: one for each thread, on a GPU or with a budget in minutes one"},
      {"prompt", &C::prompt, "what each model continues at the end; by default the validation text's beginning"},
      {"n_predict", &C::n_predict, {1, 100000}, "tokens of the continuation"}};
  return table;
}

const Fields<TrainRequest>& train_request_options() {
  using T = TrainRequest;
  static const Fields<T> table{{"prompt", &T::prompt, "what the model continues at the end"},
                               {"n_predict", &T::n_predict, {1, 1e9}, "tokens of the continuation"},
                               {"processes",
                                &T::processes,
                                {0, 65536},
                                "processes of this machine that train together; 0: this one, or those that torchrun, "
                                "srun or mpirun started"}};
  return table;
}

// A minute on two processors. Eight heads are four pairs for differential_v1, half of the fewest that its authors use.
const nlohmann::json& compare_defaults() {
  static const nlohmann::json all{
      {"model", {{"hidden_size", 64}, {"num_layers", 2}, {"attention", {{"num_heads", 8}}}}},
      {"train", {{"tokens", 120000}, {"context", 64}, {"batch_size", 8}}}};
  return all;
}

const nlohmann::json& train_defaults() {
  static const nlohmann::json all{{"train", {{"steps", 500}}}};
  return all;
}

const Fields<EvalRequest>& eval_options() {
  using E = EvalRequest;
  static const Fields<E> table{
      {"batch_size",
       &E::batch_size,
       {0, 1e6},
       "windows, items or episodes at once; 0: 8192 tokens of windows, 16 items, 65536 tokens of episodes"},
      {"ctx_size", &E::ctx_size,
       "tokens in a window, or of an item; perplexity: several between commas, longer ones than the model's context "
       "too; "
       "by default that context"},
      {"stride", &E::stride, {0, 1e9}, "perplexity: tokens from one window to the next; 0: a whole window"},
      {"validation",
       &E::validation,
       {0, 0.9},
       "perplexity, masked: the last part of the texts alone, as a training with the same --validation keeps it; 0: "
       "all"},
      {"positions", &E::positions, {0, 1000}, "perplexity: nats a token of N equal parts of the window; 0: none"},
      {"documents",
       &E::documents,
       {{"packed", Documents::packed}, {"apart", Documents::apart}},
       "perplexity of prepared data; apart: none sees another"},
      {"logit_bits",
       &E::logit_bits,
       {0, 16},
       "perplexity: attention logits rounded to N bits, 2 to 16; 0: as they are"},
      {"logit_scale", &E::logit_scale, logit_scales(),
       "which rounded logits share a scale: a layer's of a window, a head's, a query's of a head"},
      {"limit", &E::limit, {0, 1e9}, "only the first N items of each file, or episodes of a task; 0: all"},
      {"items", &E::items, "endings: results item by item (JSON lines), from which an interrupted run goes on"},
      {"dtype",
       &E::dtype,
       {{"auto", std::nullopt},
        {"float32", TrainDtype::float32},
        {"float64", TrainDtype::float64},
        {"bfloat16", TrainDtype::bfloat16},
        {"float16", TrainDtype::float16}},
       "auto: as it was trained, if that is recorded; bfloat16, float16: autocast"},
      {"weights", &E::weights, weight_words(), kWeights},
      {"precision", &E::precision, precisions(), kPrecision},
      {"device", &E::device, kDevice}};
  return table;
}

const Fields<SamplingRequest>& sampling_options() {
  using S = SamplingRequest;
  static const Fields<S> table{
      {"n_predict", &S::n_predict, {1, 1e9}, "tokens at most"},
      {"temp", &S::temp, {0, 100}, "temperature; 0 takes the likeliest token"},
      {"top_k", &S::top_k, {0, 1e9}, "only the N likeliest tokens; 0: all"},
      {"top_p", &S::top_p, {0, 1}, "only the likeliest tokens that sum to X"},
      {"min_p", &S::min_p, {0, 1}, "only tokens at least X times as likely as the likeliest"},
      {"typical_p", &S::typical_p, {0.001, 1}, "only the most typical tokens that sum to X; 1: all"},
      {"repeat_penalty", &S::repeat_penalty, {0.01, 100}, "divides the logits of tokens of prompt and text; 1: off"},
      {"frequency_penalty",
       &S::frequency_penalty,
       {-100, 100},
       "taken from a logit for each time that its token was drawn"},
      {"presence_penalty", &S::presence_penalty, {-100, 100}, "taken from the logits of tokens drawn before"},
      {"cache_type", &S::cache_type, cache_types(), "how keys and values are kept"},
      {"compact_cache", &S::compact_cache,
       "keys in the mechanism's smaller form, made whole in every step (CoCA: 3/4 of the bytes)"},
      {"weights", &S::weights, weight_words(), kWeights},
      {"precision", &S::precision, precisions(), kPrecision},
      {"device", &S::device, kDevice},
      {"stepwise_base", &S::stepwise_base,
       "dynamic position scaling by the length reached, as published, not by the planned one"},
      {"eager", &S::eager,
       "on a GPU every step is launched anew, where a record of one (a CUDA graph) would be replayed"},
      {"seed", &S::seed, {0, 1e15}, "of the random choice"}};
  return table;
}

const Fields<GenerateRequest>& generate_request_options() {
  using G = GenerateRequest;
  static const Fields<G> table{
      {"samples", &G::samples, {1, 4096}, "continuations of the prompt; each is the same whatever their number"},
      {"logprobs", &G::logprobs, {0, 1000}, "with -o json: of each token, and of the N likeliest at its place"},
      {"no_special_tokens", &G::no_special_tokens,
       "the prompt goes without what the tokenizer's file puts before every text, such as <s>"}};
  return table;
}

const Fields<ConvertRequest>& convert_options() {
  using C = ConvertRequest;
  static const Fields<C> table{
      {"to", &C::to, "layout of the result, one of --list"},
      {"out", &C::out, "new folder"},
      {"dtype",
       &C::dtype,
       {{"keep", C::Dtype::keep},
        {"float64", C::Dtype::float64},
        {"float32", C::Dtype::float32},
        {"bfloat16", C::Dtype::bfloat16},
        {"float16", C::Dtype::float16}},
       "type of the numbers; keep: as stored, float32 for quantised ones"},
      {"weights",
       &C::weights,
       {{"keep", std::nullopt}, {"int8", WeightType::int8}},
       "int8: matrices in 8 bits, which generate, chat, serve and eval map; keep: as --dtype says"},
      {"mechanism", &C::mechanism, "coca: of a model whose config.json does not say it"},
      {"retrofit", &C::retrofit,
       "give a plain model dcmha, talking_heads, differential_v2 or key_size, starting equal; or coca"},
      {"seed", &C::seed, {0, 1e15}, "of what --retrofit adds"}};
  return table;
}

const Fields<VerifyRequest>& verify_options() {
  using V = VerifyRequest;
  static const Fields<V> table{
      {"dtype",
       &V::dtype,
       {{"float64", V::Dtype::float64}, {"float32", V::Dtype::float32}, {"bfloat16", V::Dtype::bfloat16}},
       "what the recorded inputs are cast to and computed in"},
      {"device", &V::device, kDevice},
      {"tolerance", &V::tolerance, {0, 1e9}, "largest error that passes; by default 1e-10, 2e-3 or 5e-2 by dtype"}};
  return table;
}

const Fields<PrepareRequest>& prepare_options() {
  using P = PrepareRequest;
  static const Fields<P> table{
      {"tokenizer", &P::tokenizer, "a tokenizer's file or folder, or bytes"},
      {"out", &P::out, "the new folder"},
      {"validation", &P::validation, {0, 0.9}, "keep every 1/X-th document for validation; 0: none"},
      {"text_field", &P::text_field, "what lines of JSON call the text"},
      {"format",
       &P::format,
       {{"auto", "auto"}, {"txt", "txt"}, {"jsonl", "jsonl"}},
       "of the inputs; auto: by the file's name, txt for standard input"},
      {"document_token", &P::document_token,
       "stands before each document, or none; auto: the first there is of <|endoftext|>, <|begin_of_text|> and <s>"},
      {"shard_tokens", &P::shard_tokens, {1000, 1e12}, "tokens of each file but the last"}};
  return table;
}

const Fields<ExperimentRequest>& experiment_options() {
  using E = ExperimentRequest;
  static const Fields<E> table{
      {"folder", &E::folder, "where the experiments lie"},
      {"data", &E::data, "where the prepared data lie that experiments name"},
      {"scale", &E::scale, "run: one of the experiment's scales; by default the first"},
      {"arms", &E::arms, "run: these arms alone, between commas"},
      {"seeds", &E::seeds, {1, 24}, "run: the first N seeds alone; by default all"},
      {"cells", &E::cells,
       "run: a part of the seeds, as in 1/2, so that several machines or processes share the cells"},
      {"minutes", &E::minutes, {0, 1e6}, "run: no cell begins that would end later; 0: all of them"},
      {"jobs", &E::jobs, {1, 4096}, "run: cells at once; by default one a thread, on a GPU one"},
      {"device", &E::device, kDevice}};
  return table;
}

const Fields<BenchRequest>& bench_options() {
  using B = BenchRequest;
  static const Fields<B> table{
      {"shape", &B::shape, "sizes between commas, as in T=512,H=8,D=64,B=1,mechanism=dcmha"},
      {"repeats",
       &B::repeats,
       {1, 10000},
       "measurements, of which the median counts; by default 9, of infer and checkpoint 5"},
      {"goals", &B::goals,
       "attention, train: the goals of the fused kernels, with what each reaches; exit 1 if one falls short"},
      {"dtype", &B::dtype, "attention: float32, bfloat16 or float16; train: float32, float64 or bfloat16 (autocast)"},
      {"mechanisms", &B::mechanisms, "train, infer: whose models take turns, as in mha,dcmha; by default mha"},
      {"weights", &B::weights,
       "infer: of float32, bfloat16, float16, int8; by default a folder's own or float32, and int8; serve: one"},
      {"cache_types", &B::cache_types,
       "infer: how keys and values are kept, of model, bfloat16, float16, int8; by default model"},
      {"rivals", &B::rivals,
       "train: of torch and compile, by default torch; infer: of llama_cpp and transformers (by default both), or "
       "none; serve: llama_server, by default none"},
      {"recompute", &B::recompute, "train: each model once more with train.recompute = block"},
      {"device", &B::device, kDevice},
      {"python", &B::python,
       "train, infer, serve, --goals: the Python with torch that runs the rivals; by default .venv/bin/python"},
      {"processes", &B::processes, {0, 65536}, "processes: how many of this machine train together, as in 2"},
      {"beside", &B::beside, "serve: the folder of a second model, whose 8 clients take turns with the first one's"},
      {"soak",
       &B::soak,
       {0, 1e9},
       "serve: so many requests with answers of 16 tokens, 5 % of which are left; what is lost, wrong or grows"},
      {"turn",
       &B::turn,
       {0, 1e6},
       "serve: the time to the first token of a conversation's second turn, whose first prompt has so many tokens"}};
  return table;
}

}  // namespace motet
