#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "motet/core/fields.h"
#include "motet/sampling/writer.h"
#include "motet/serve/refused.h"

namespace motet {

inline constexpr size_t kRequestDepth = 32;  // of its JSON
inline constexpr int64_t kMostPrompts = 128, kMostSamples = 16, kMostStops = 16, kMostLogprobs = 20;
inline constexpr int64_t kMostMessages = 4096;
inline constexpr size_t kMostStopBytes = 512;  // of each: every sample keeps them
/// Logarithmic probabilities that the answer to a request may tell.
inline constexpr int64_t kMostToldLogprobs = 1 << 19;

/// The numbers and switches of a body; null stands for the default.
struct CompletionFields {
  std::string model;
  int64_t n = 1, seed = 0, top_k = 0;
  double temperature = 1, top_p = 1, min_p = 0, typical_p = 1, repetition_penalty = 1, frequency_penalty = 0,
         presence_penalty = 0;
  bool stream = false, echo = false, ignore_eos = false, skip_special_tokens = true, add_special_tokens = true;
};
const Fields<CompletionFields>& completion_fields();

/// What the body of POST /v1/completions or /v1/chat/completions asks for.
struct CompletionRequest {
  bool chat = false;
  CompletionFields fields;
  std::vector<std::variant<std::string, std::vector<int32_t>>> prompts;  // of a completion
  nlohmann::ordered_json messages;                                       // of a chat
  std::optional<int64_t> max_tokens;
  bool seeded = false;               // the seed was given, and is not -1
  bool include_usage = false;        // in a last chunk of the stream
  WriterOptions writer;              // without the end tokens
  std::vector<std::string> unknown;  // fields that nobody here knows
};

/// Reads a body and checks every number before anything is made of it. `vocabulary`: ids are below it. Throws Refused
/// 400 naming the field, its value and what is wanted.
CompletionRequest read_completion(std::string_view body, bool chat, int64_t vocabulary);

/// The JSON object of a body. Throws Refused 400.
nlohmann::json read_body(std::string_view body);
/// Adds the names of an object that are not known, behind its path, as in "stream_options.".
void note_unknown(const nlohmann::json& object, const std::string& path, std::initializer_list<std::string_view> known,
                  std::vector<std::string>& unknown);
/// Token ids of a list. Throws Refused 400 naming `field`.
std::vector<int32_t> read_ids(const nlohmann::json& list, int64_t vocabulary, const std::string& field);

}  // namespace motet
