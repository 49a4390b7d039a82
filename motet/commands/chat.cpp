#include "motet/generate/chat.h"

#include <unistd.h>

#include <csignal>
#include <iostream>

#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/formats/json.h"
#include "motet/generate/end_tokens.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

// chat_template.jinja, or chat_template of tokenizer_config.json.
ChatTemplate chat_template(const Companions& beside, const fs::path& folder) {
  const auto jinja = beside.files.find("chat_template.jinja"), config = beside.files.find("tokenizer_config.json");
  if (jinja != beside.files.end()) return ChatTemplate(jinja->second, (folder / jinja->first).string());
  if (config != beside.files.end()) {
    const std::string where = (folder / config->first).string();
    const nlohmann::json given = parse_json(config->second, where);
    if (given.is_object() && given.contains("chat_template") && given["chat_template"].is_string())
      return ChatTemplate(given["chat_template"].get<std::string>(), where);
  }
  fail(folder.string(), ": no chat template, want chat_template.jinja or chat_template in tokenizer_config.json");
}

// What a template may use besides the messages: the texts of the tokens that begin and end.
nlohmann::ordered_json token_variables(const LoadedModel& model) {
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  for (const char* role : {"bos_token", "eos_token"}) {
    const nlohmann::json id = model.companions.token_ids.value(text(role, "_id"), nlohmann::json());
    std::string name = token_name(model.companions, role);
    if (name.empty() && id.is_number_integer() && id >= 0 && id < model.tokenizer->vocabulary_size())
      name = model.tokenizer->piece(id.get<int32_t>());
    if (!name.empty()) variables[role] = name;
  }
  return variables;
}

}  // namespace

int run_chat(const nlohmann::json& request) {
  const SamplingRequest sampling = read_request(sampling_options(), request);
  const fs::path folder = model_folder(request, "model");
  request_threads(request);
  const LoadedModel loaded = load_for_inference(folder, sampling);
  const ChatTemplate form = chat_template(loaded.companions, folder);
  GenerateOptions options = generate_options(request, sampling, loaded);
  options.end_at_special = !request.value("ignore_eos", false);
  Model model = loaded.model;
  Chat chat(*model, *loaded.tokenizer, form, token_variables(loaded), request.value("system", ""));

  const bool person = ::isatty(STDIN_FILENO) != 0;
  if (person) std::cerr << "Ctrl-C stops an answer, Ctrl-D ends the chat.\n";
  for (std::string message; true;) {
    if (person) std::cerr << "\n> " << std::flush;
    if (!read_line(std::cin, message, "standard input")) break;
    if (message.empty()) continue;
    try {
      chat.answer(message, options, show);
    } catch (const Interrupted& interrupt) {
      if (!person || interrupt.exit_code() != exit_code_of_signal(SIGINT)) throw;
      resume_after_interrupt();
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      if (!person) throw;
      std::cerr << "motet: " << error.what() << "\n";  // the conversation goes on without this message
    }
    show("\n");
  }
  return 0;
}

}  // namespace motet
