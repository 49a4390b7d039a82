#include "motet/generate/chat.h"

#include <unistd.h>

#include <iostream>

#include "motet/checkpoints/model_folder.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

struct Form {
  std::string source, where;
  nlohmann::ordered_json variables;
};

// chat_template.jinja or tokenizer_config.json of a model folder.
Form chat_form(const fs::path& folder) {
  Form form;
  const fs::path config = folder / "tokenizer_config.json", jinja = folder / "chat_template.jinja";
  if (fs::exists(config)) {
    const nlohmann::json given = read_json(config.string());
    for (const char* token : {"bos_token", "eos_token"}) {
      if (!given.contains(token)) continue;
      const nlohmann::json& value = given[token];
      if (value.is_string()) form.variables[token] = value.get<std::string>();
      if (value.is_object() && value.contains("content")) form.variables[token] = value["content"].get<std::string>();
    }
    if (given.contains("chat_template") && given["chat_template"].is_string())
      form.source = given["chat_template"].get<std::string>(), form.where = config.string();
  }
  if (fs::exists(jinja)) form.source = read_file(jinja), form.where = jinja.string();
  if (form.source.empty())
    fail(folder.string(), ": no chat template, want chat_template.jinja or chat_template in tokenizer_config.json");
  return form;
}

}  // namespace

int run_chat(const nlohmann::json& request) {
  const nlohmann::json values = request_values(sampling_options(), request);
  const fs::path folder = model_folder(request, "model");
  request_threads(request);
  Model model = load_for_inference(folder, values);
  const auto tokenizer = load_tokenizer(folder, model->config());
  const Form form = chat_form(folder);
  const ChatTemplate chat_template(form.source, form.where);
  GenerateOptions options = generate_options(values);
  options.stop = request.value("stop", std::vector<std::string>());
  Chat chat(*model, *tokenizer, chat_template, form.variables, request.value("system", ""));

  const bool person = ::isatty(STDIN_FILENO) != 0;
  if (person) std::cerr << "Ctrl-C stops an answer, Ctrl-D ends the chat.\n";
  for (std::string message; true;) {
    if (person) std::cerr << "\n> " << std::flush;
    if (!std::getline(std::cin, message)) break;
    if (message.empty()) continue;
    try {
      chat.answer(message, options, [](std::string_view text) { std::cout << text << std::flush; });
    } catch (const Interrupted&) {
      if (!person) throw;
      resume_after_interrupt();
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      if (!person) throw;
      std::cerr << "motet: " << error.what() << "\n";  // the conversation goes on without this message
    }
    std::cout << std::endl;
  }
  check_interrupt();
  return 0;
}

}  // namespace motet
