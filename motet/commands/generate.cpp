#include <iostream>

#include "motet/checkpoints/model_folder.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"

namespace motet {

int run_generate(const nlohmann::json& request) {
  const nlohmann::json values = request_values(sampling_options(), request);
  const std::filesystem::path folder = model_folder(request, "model");
  const std::string prompt = request.value("prompt", "");
  if (prompt.empty()) fail_usage("--prompt is missing or empty, want the text to continue");
  const TableFormat format = output_format(request);
  request_threads(request);
  Model model = load_model_folder(folder);
  const auto tokenizer = load_tokenizer(folder, model->config());
  GenerateOptions options = generate_options(values);
  options.stop = request.value("stop", std::vector<std::string>());
  if (format != TableFormat::table) {
    const std::string continuation = generate(*model, *tokenizer, prompt, options);
    print_table({.columns = {{"prompt", Align::left}, {"text", Align::left}}, .rows = {{prompt, continuation}}},
                request);
    return 0;
  }
  bool begun = false;  // the prompt appears with the first text, so that a refused prompt prints nothing
  generate(*model, *tokenizer, prompt, options, [&](std::string_view text) {
    if (!begun) std::cout << prompt;
    begun = true;
    std::cout << text << std::flush;
  });
  if (!begun) std::cout << prompt;  // a stop string may leave no text at all
  std::cout << std::endl;
  return 0;
}

}  // namespace motet
