#include "motet/generate/chat.h"

#include <unistd.h>

#include <csignal>
#include <iostream>

#include "motet/commands/chat_form.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/formats/json.h"
#include "motet/generate/end_tokens.h"

namespace motet {

namespace fs = std::filesystem;

int run_chat(const nlohmann::json& request) {
  const SamplingRequest sampling = read_request(sampling_options(), request);
  const fs::path folder = model_folder(request, "model");
  request_threads(request);
  const LoadedModel loaded = load_for_inference(folder, sampling);
  const std::shared_ptr<const ChatTemplate> form = chat_template(loaded.companions, folder);
  if (!form)
    fail(folder.string(), ": no chat template, want chat_template.jinja or chat_template in tokenizer_config.json");
  GenerateOptions options = generate_options(request, sampling, loaded);
  options.writer.end_at_special = !request.value("ignore_eos", false);
  Model model = loaded.model;
  Chat chat(*model, *loaded.tokenizer, *form, token_variables(loaded.companions, *loaded.tokenizer),
            request.value("system", ""));

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
