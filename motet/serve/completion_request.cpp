#include "motet/serve/completion_request.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "motet/core/shown.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

using nlohmann::json;

// Known to clients of OpenAI, vLLM and llama.cpp and not done here. A value that asks for nothing is taken.
const std::map<std::string, std::vector<json>>& refused_fields() {
  static const std::map<std::string, std::vector<json>> all{{"tools", {json::array()}},
                                                            {"tool_choice", {"none", "auto"}},
                                                            {"functions", {json::array()}},
                                                            {"function_call", {"none"}},
                                                            {"suffix", {""}},
                                                            {"best_of", {1}},
                                                            {"response_format", {{{"type", "text"}}}},
                                                            {"audio", {}},
                                                            {"modalities", {json::array({"text"})}},
                                                            {"chat_template", {}},
                                                            {"chat_template_kwargs", {json::object()}},
                                                            {"guided_json", {}},
                                                            {"guided_regex", {}},
                                                            {"guided_choice", {}},
                                                            {"guided_grammar", {}},
                                                            {"structured_outputs", {}},
                                                            {"add_generation_prompt", {true}},
                                                            {"prediction", {}},
                                                            {"use_beam_search", {false}},
                                                            {"stop_token_ids", {json::array()}},
                                                            {"min_tokens", {0}},
                                                            {"bad_words", {json::array()}},
                                                            {"allowed_token_ids", {}},
                                                            {"include_stop_str_in_output", {false}},
                                                            {"continue_final_message", {false}},
                                                            {"truncate_prompt_tokens", {}},
                                                            {"prompt_logprobs", {}},
                                                            {"logits_processors", {json::array()}},
                                                            {"vllm_xargs", {json::object()}},
                                                            {"length_penalty", {1}},
                                                            {"return_tokens_as_token_ids", {false}},
                                                            {"grammar", {""}},
                                                            {"json_schema", {}},
                                                            {"n_predict", {}},
                                                            {"repeat_penalty", {1}},
                                                            {"mirostat", {0}},
                                                            {"documents", {json::array()}}};
  return all;
}

// Taken and without effect: who asks, and how an answer would be billed.
const std::vector<std::string> kIgnored{"user", "metadata", "store", "service_tier", "parallel_tool_calls"};
const std::vector<std::string> kRead{"prompt",     "messages", "max_tokens",     "max_completion_tokens", "stop",
                                     "logit_bias", "logprobs", "stream_options", "top_logprobs"};

[[noreturn]] void refuse(const std::string& field, const json& value, const std::string& wanted) {
  throw Refused(400, text(field, ": ", shown(value), ", want ", wanted), field);
}

int64_t read_integer(const json& value, const std::string& field, int64_t least, int64_t most) {
  const Option option{.name = field,
                      .type = OptionType::integer,
                      .default_value = 0,
                      .min = static_cast<double>(least),
                      .max = static_cast<double>(most)};
  if (value.is_string()) refuse(field, value, accepted(option));
  try {
    return checked(option, value, field).get<int64_t>();
  } catch (const UsageError& error) {
    throw Refused(400, error.what(), field);
  }
}

const json* given(const json& body, const char* name) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

bool given_true(const json& body, const char* name, const std::string& field) {
  const json* value = given(body, name);
  if (value && !value->is_boolean()) refuse(field, *value, "true or false");
  return value && value->get<bool>();
}

CompletionFields read_fields(const json& body) {
  json known = json::object();
  for (const Option& option : completion_fields().table()) {
    const json* value = given(body, option.name.c_str());
    if (!value) continue;
    if (option.type != OptionType::string && value->is_string()) refuse(option.name, *value, accepted(option));
    known[option.name] = *value;
  }
  try {
    return completion_fields().parse(known, "");
  } catch (const UsageError& error) {
    const std::string line = error.what();
    throw Refused(400, line, line.substr(0, line.find(':')));
  }
}

void check_names(const json& body, bool chat, CompletionRequest& request) {
  for (const auto& [name, value] : body.items()) {
    if (const auto refused = refused_fields().find(name); refused != refused_fields().end()) {
      const auto& harmless = refused->second;
      if (!value.is_null() && std::find(harmless.begin(), harmless.end(), value) == harmless.end())
        throw Refused(400, text(name, ": is not supported, want it left out"), name);
      continue;
    }
    const auto among = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    const auto& table = completion_fields().table();
    if (!among(kIgnored) && !among(kRead) && std::ranges::find(table, name, &Option::name) == table.end())
      request.unknown.push_back(name);
  }
  const char* const other = chat ? "prompt" : "messages";
  if (given(body, other))
    throw Refused(400, text(other, ": is of the other route, want ", chat ? "messages" : "prompt"), other);
  if (!chat && given(body, "top_logprobs"))
    throw Refused(400, "top_logprobs: is of the other route, want logprobs", "top_logprobs");
}

void read_prompts(const json& body, int64_t vocabulary, CompletionRequest& request) {
  const json* prompt = given(body, "prompt");
  const auto one = [&](const json& value) {
    const bool of_text = value.is_string();
    if (of_text)
      request.prompts.emplace_back(value.get<std::string>());
    else
      request.prompts.emplace_back(read_ids(value, vocabulary, "prompt"));
  };
  constexpr const char* kWanted = "a text, token ids, or a list of either";
  if (!prompt) throw Refused(400, text("prompt: is missing, want ", kWanted), "prompt");
  if (prompt->is_string()) return one(*prompt);
  if (!prompt->is_array() || prompt->empty()) refuse("prompt", *prompt, kWanted);
  if (prompt->front().is_number()) return one(*prompt);
  if (prompt->size() > static_cast<size_t>(kMostPrompts))
    throw Refused(400, text("prompt: ", prompt->size(), " prompts, want at most ", kMostPrompts), "prompt");
  for (const json& value : *prompt) {
    if (!value.is_string() && !value.is_array()) refuse("prompt", value, kWanted);
    one(value);
  }
}

// A message's content is a text, or parts of which all are texts: lines, as in vLLM.
json read_content(const json& content, const std::string& field, std::vector<std::string>& unknown) {
  if (content.is_string() || content.is_null()) return content.is_null() ? json("") : content;
  std::string all;
  if (!content.is_array()) refuse(field, content, "a text or a list of parts of type text");
  for (const json& part : content) {
    if (!part.is_object() || part.value("type", json()) != "text" || !part.value("text", json()).is_string())
      refuse(field, part, "parts of type text alone");
    note_unknown(part, "messages[].content[].", {"type", "text"}, unknown);
    if (&part != &content.front()) all += '\n';
    all += part["text"].get<std::string>();
  }
  return all;
}

void read_messages(const json& body, CompletionRequest& request) {
  const json* messages = given(body, "messages");
  if (!messages || !messages->is_array() || messages->empty())
    throw Refused(400, "messages: want a list of at least one message", "messages");
  if (messages->size() > static_cast<size_t>(kMostMessages))
    throw Refused(400, text("messages: ", messages->size(), " messages, want at most ", kMostMessages), "messages");
  for (size_t i = 0; i < messages->size(); ++i) {
    const json& message = (*messages)[i];
    const std::string field = text("messages[", i, "]");
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      refuse(field, message, "an object with a role");
    for (const char* call : {"tool_calls", "function_call"})
      if (const json* calls = given(message, call); calls && *calls != json::array())
        throw Refused(400, text(field, ".", call, ": is not supported, want it left out"), field);
    if (!message.contains("content")) refuse(field, message, "an object with a content");
    note_unknown(message, "messages[].", {"role", "content", "tool_calls", "function_call"}, request.unknown);
    request.messages.push_back({{"role", message["role"].get<std::string>()},
                                {"content", read_content(message["content"], field + ".content", request.unknown)}});
  }
}

void read_logprobs(const json& body, CompletionRequest& request) {
  if (!request.chat) {
    if (const json* value = given(body, "logprobs"); value && *value != false)
      request.writer.logprobs = read_integer(*value, "logprobs", 0, kMostLogprobs);
    return;
  }
  const bool wanted = given_true(body, "logprobs", "logprobs");
  const json* top = given(body, "top_logprobs");
  if (top && !wanted && *top != 0) refuse("top_logprobs", *top, "logprobs = true beside it");
  if (wanted) request.writer.logprobs = top ? read_integer(*top, "top_logprobs", 0, kMostLogprobs) : 0;
}

// The name of OpenAI's older clients and that of its newer ones.
std::optional<int64_t> read_length(const json& body, bool chat) {
  std::optional<int64_t> length;
  for (const char* name : {"max_completion_tokens", "max_tokens"}) {
    const json* value = given(body, name);
    if (!value) continue;
    const int64_t tokens = read_integer(*value, name, chat ? 1 : 0, 1 << 30);
    if (length && *length != tokens) refuse(name, *value, text("the ", *length, " of max_completion_tokens"));
    length = tokens;
  }
  return length;
}

std::vector<std::string> read_stop(const json& body) {
  const json* given_stop = given(body, "stop");
  if (!given_stop) return {};
  const json stop = given_stop->is_string() ? json::array({*given_stop}) : *given_stop;
  if (!stop.is_array() || stop.size() > static_cast<size_t>(kMostStops))
    refuse("stop", stop, text("a text or a list of at most ", kMostStops));
  std::vector<std::string> all;
  for (const json& one : stop) {
    if (!one.is_string()) refuse("stop", one, "texts");
    all.push_back(one.get<std::string>());
    if (all.back().size() > kMostStopBytes)
      throw Refused(400, text("stop: a text of ", all.back().size(), " bytes, want at most ", kMostStopBytes), "stop");
  }
  return all;
}

std::vector<std::pair<int32_t, double>> read_bias(const json& body, int64_t vocabulary) {
  std::vector<std::pair<int32_t, double>> all;
  const json* bias = given(body, "logit_bias");
  if (!bias) return all;
  if (!bias->is_object() || bias->size() > 1024)
    refuse("logit_bias", *bias, "an object of at most 1024 token ids and numbers");
  const Option number{.name = "", .type = OptionType::number, .default_value = 0, .min = -100, .max = 100};
  for (const auto& [id, value] : bias->items()) {
    const std::string field = text("logit_bias[", quote(id), "]");
    int32_t token = -1;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), token);
    if (error != std::errc() || token < 0 || token >= vocabulary || id != std::to_string(token))
      refuse("logit_bias", id, text("token ids, integers from 0 to ", vocabulary - 1));
    if (!value.is_number() || !(value >= -100 && value <= 100)) refuse(field, value, "a number, -100 to 100");
    all.emplace_back(token, value.get<double>());
  }
  return all;
}

}  // namespace

const Fields<CompletionFields>& completion_fields() {
  using C = CompletionFields;
  static const Fields<C> table{
      {"model", &C::model, "the name of the model that is served, as /v1/models tells it; empty: that one"},
      {"n", &C::n, {1, kMostSamples}, "samples of each prompt"},
      {"seed", &C::seed, {-0x1p63, 0x1p63}, "of the random choice; by default, and with -1, another one each time"},
      {"temperature", &C::temperature, {0, 2}, "0 takes the likeliest token"},
      {"top_p", &C::top_p, {0, 1}, "only the likeliest tokens that sum to it"},
      {"top_k", &C::top_k, {-1, 1e9}, "only so many of the likeliest tokens; 0, -1: all"},
      {"min_p", &C::min_p, {0, 1}, "only tokens at least so many times as likely as the likeliest"},
      {"typical_p", &C::typical_p, {0.001, 1}, "only the most typical tokens that sum to it"},
      {"repetition_penalty", &C::repetition_penalty, {0.01, 100}, "divides the logits of tokens of prompt and text"},
      {"frequency_penalty",
       &C::frequency_penalty,
       {-2, 2},
       "taken from a logit for each time that its token was drawn"},
      {"presence_penalty", &C::presence_penalty, {-2, 2}, "taken from the logits of tokens drawn before"},
      {"stream", &C::stream, "the answer comes in parts, as server-sent events"},
      {"echo", &C::echo, "completions: the prompt stands before the answer"},
      {"ignore_eos", &C::ignore_eos, "the model's end tokens do not end the text"},
      {"skip_special_tokens", &C::skip_special_tokens, "special tokens that are drawn are left out of the text"},
      {"add_special_tokens", &C::add_special_tokens,
       "completions: what the tokenizer's file puts before every text, such as <s>, stands before a prompt of text"}};
  return table;
}

json read_body(std::string_view body) {
  json value;
  try {
    value = parse_json(body, "the body", body.size(), kRequestDepth);
  } catch (const Error& error) {
    throw Refused(400, error.what());
  }
  if (!value.is_object()) throw Refused(400, text("the body is ", value.type_name(), ", want a JSON object"));
  return value;
}

void note_unknown(const json& object, const std::string& path, std::initializer_list<std::string_view> known,
                  std::vector<std::string>& unknown) {
  for (const auto& [name, value] : object.items())
    if (std::ranges::find(known, name) == known.end() && std::ranges::find(unknown, path + name) == unknown.end())
      unknown.push_back(path + name);
}

std::vector<int32_t> read_ids(const json& list, int64_t vocabulary, const std::string& field) {
  if (!list.is_array()) refuse(field, list, "a list of token ids");
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const json& id : list) {
    if (!id.is_number_integer()) refuse(field, id, text("token ids, integers from 0 to ", vocabulary - 1));
    ids.push_back(static_cast<int32_t>(read_integer(id, field, 0, vocabulary - 1)));
  }
  return ids;
}

CompletionRequest read_completion(std::string_view bytes, bool chat, int64_t vocabulary) {
  const json body = read_body(bytes);
  CompletionRequest request{.chat = chat};
  check_names(body, chat, request);
  request.fields = read_fields(body);
  const CompletionFields& f = request.fields;
  if (chat && f.echo) refuse("echo", true, "it left out: a chat has no prompt to repeat");
  if (chat && given_true(body, "add_special_tokens", "add_special_tokens"))
    refuse("add_special_tokens", true, "it left out: a template writes its own");
  chat ? read_messages(body, request) : read_prompts(body, vocabulary, request);
  request.max_tokens = read_length(body, chat);
  read_logprobs(body, request);
  request.writer.stop = read_stop(body);
  request.writer.skip_special = f.skip_special_tokens;
  if (const json* options = given(body, "stream_options")) {
    if (!options->is_object()) refuse("stream_options", *options, "an object");
    if (!f.stream) refuse("stream_options", *options, "stream = true beside it");
    request.include_usage = given_true(*options, "include_usage", "stream_options.include_usage");
    note_unknown(*options, "stream_options.", {"include_usage"}, request.unknown);
  }
  request.seeded = given(body, "seed") && f.seed != -1;
  request.writer.sampler = {.temperature = f.temperature,
                            .top_k = std::max<int64_t>(0, f.top_k),
                            .top_p = f.top_p,
                            .min_p = f.min_p,
                            .typical_p = f.typical_p,
                            .repeat_penalty = f.repetition_penalty,
                            .frequency_penalty = f.frequency_penalty,
                            .presence_penalty = f.presence_penalty,
                            .seed = static_cast<uint64_t>(f.seed),
                            .bias = read_bias(body, vocabulary)};
  return request;
}

}  // namespace motet
