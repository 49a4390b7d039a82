#include "motet/generate/generate.h"

#include <chrono>
#include <iostream>

#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/text/pipeline/stream_decoder.h"

namespace motet {
namespace {

// The prompt and its continuation as they appear, for one sample; the prompt comes with the first text, so that a
// refused one prints nothing.
std::vector<Sample> stream(Decoder& decoder, const Tokenizer& tokenizer, const std::string& prompt,
                           const GenerateOptions& options) {
  bool begun = false;
  auto samples = continue_text(decoder, tokenizer, options, [&](int64_t, std::string_view text) {
    if (!begun) std::cout << prompt;
    begun = true;
    show(text);
  });
  if (!begun) std::cout << prompt;  // a stop string may leave no text at all
  std::cout << std::endl;
  return samples;
}

nlohmann::json scored(const Tokenizer& tokenizer, const ScoredToken& token) {
  StreamDecoder alone(tokenizer);  // part of a character becomes U+FFFD
  std::string text = alone.push(token.id);
  text += alone.flush();
  return {{"id", token.id}, {"token", text}, {"logprob", token.logprob}};
}

Cell tokens_cell(const Tokenizer& tokenizer, const Sample& sample) {
  nlohmann::json all = nlohmann::json::array();
  for (const GeneratedToken& token : sample.tokens) {
    all.push_back(scored(tokenizer, token));
    for (const ScoredToken& other : token.top) all.back()["top"].push_back(scored(tokenizer, other));
  }
  return {all.dump(), all};
}

void print_samples(const std::vector<Sample>& samples, const Tokenizer& tokenizer, const nlohmann::json& request) {
  const bool with_tokens = request.contains("logprobs");
  Table table{.columns = {{"sample"}, {"prompt", Align::left}, {"text", Align::left}, {"finish_reason", Align::left}}};
  if (with_tokens) table.columns.push_back({"tokens", Align::left});
  for (size_t i = 0; i < samples.size(); ++i) {
    table.rows.push_back(
        {{std::to_string(i), i}, request.value("prompt", ""), samples[i].text, samples[i].stopped ? "stop" : "length"});
    if (with_tokens) table.rows.back().push_back(tokens_cell(tokenizer, samples[i]));
  }
  print_table(table, request);
}

}  // namespace

int run_generate(const nlohmann::json& request) {
  const SamplingRequest sampling = read_request(sampling_options(), request);
  const GenerateRequest own = read_request(generate_request_options(), request);
  const std::filesystem::path folder = model_folder(request, "model");
  const std::string prompt = request.value("prompt", "");
  if (prompt.empty()) fail_usage("--prompt is missing or empty, want the text to continue");
  const bool table = output_format(request) == TableFormat::table;
  if (table && request.contains("logprobs")) fail_usage("--logprobs needs -o json, jsonl or csv");
  request_threads(request);
  const LoadedModel loaded = load_for_inference(folder, sampling);
  const Tokenizer& tokenizer = *loaded.tokenizer;
  Model model = loaded.model;
  GenerateOptions options = generate_options(request, sampling, loaded);
  options.samples = own.samples;
  options.special_tokens = !own.no_special_tokens;
  options.writer.logprobs = own.logprobs;
  options.writer.continues = true;

  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto begin = now();
  auto drawing = begin;
  options.on_prompt = [&] { drawing = now(); };
  Decoder decoder(*model, prompt_tokens(tokenizer, prompt, model->config().context, options.special_tokens),
                  options.max_tokens, options.cache);
  const size_t prompt_size = decoder.ids().size();
  const bool streams = table && options.samples == 1;
  const auto samples =
      streams ? stream(decoder, tokenizer, prompt, options) : continue_text(decoder, tokenizer, options);
  const auto end = now();
  size_t made = 0;
  for (const Sample& sample : samples) made += sample.tokens.size();
  if (!streams) print_samples(samples, tokenizer, request);
  const auto pace = [](size_t tokens, std::chrono::duration<double> taken) {
    return text(tokens, " tokens in ", fixed(taken.count(), 2), " s (",
                fixed(static_cast<double>(tokens) / taken.count(), 1), "/s)");
  };
  log_info(text("prompt: ", pace(prompt_size, drawing - begin), "; then ", pace(made, end - drawing), "; cache ",
                fixed(static_cast<double>(decoder.cache().bytes()) / (1 << 20), 2), " MiB for ",
                decoder.cache().size() * decoder.sequences(), " tokens"));
  return 0;
}

}  // namespace motet
