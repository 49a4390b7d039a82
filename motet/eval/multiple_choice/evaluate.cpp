#include "motet/eval/multiple_choice/evaluate.h"

#include <c10/util/hash.h>

#include <algorithm>

#include "motet/checkpoints/eight_bits.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/core/log.h"
#include "motet/core/progress.h"
#include "motet/data/hash.h"
#include "motet/eval/multiple_choice/item_file.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::string> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      out.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".jsonl") inside.push_back(entry.path().string());
    if (inside.empty()) fail(path, ": the folder holds no *.jsonl");
    std::sort(inside.begin(), inside.end());
    out.insert(out.end(), inside.begin(), inside.end());
  }
  return out;
}

std::vector<ScoredItem> items_of(const ChoiceTask& task, const std::vector<std::string>& files,
                                 const Tokenizer& tokenizer, const ChoiceOptions& options, int64_t context) {
  std::vector<ScoredItem> out;
  for (size_t f = 0; f < files.size(); ++f) {
    check_interrupt();
    std::vector<Question> questions = read_questions(task, read_file(files[f]), files[f]);
    if (options.limit > 0 && questions.size() > static_cast<size_t>(options.limit)) questions.resize(options.limit);
    size_t cut = 0;
    for (size_t i = 0; i < questions.size(); ++i) {
      out.push_back(scored_item(questions[i], tokenizer, options.first, context, text(files[f], ": item ", i)));
      out.back().file = f;
      out.back().item = i;
      cut += out.back().cut;
    }
    if (cut > 0)
      log_warn(text(files[f], ": ", cut, " of ", questions.size(), " items are longer than the context of ", context,
                    " tokens; their beginnings are left out"));
  }
  return out;
}

std::string hash_of_items(const std::vector<ScoredItem>& items) {
  std::string bytes;
  const auto append = [&](int64_t number) { bytes.append(reinterpret_cast<const char*>(&number), sizeof number); };
  for (const ScoredItem& item : items) {
    append(static_cast<int64_t>(item.gold));
    for (const ScoredSequence& s : item.choices) {
      append(s.scored);
      for (const int64_t token : s.tokens) append(token);
    }
  }
  return c10::sha1(bytes).str();
}

std::string hash_of_model(ModelImpl& model) {
  std::string bytes = model_options().write(model.config().options).dump() + model.config().attention.dump();
  const auto append = [&](const std::string& name, const Tensor& t) {
    const Tensor here = t.detach().to(at::kCPU).contiguous();
    const auto own = host_bytes(here);
    bytes += text(name, " ", hash64({reinterpret_cast<const char*>(own.data()), own.size()}), "\n");
  };
  const std::map<std::string, LinearImpl*> matrices = matrices_of(model);
  for (const auto& item : model.named_parameters()) {
    const auto found = matrices.find(item.key());
    const Matrix w = found == matrices.end() ? Matrix() : found->second->operands().weight_NK;
    const bool halves = w.kept && !w.scale_N.defined();  // which score as float32 does
    append(item.key(), halves ? w.values_NK.to(at::kFloat) : item.value());
    if (w.scale_N.defined()) append(item.key(), w.values_NK), append(item.key(), w.scale_N);
  }
  return c10::sha1(bytes).str();
}

// What its products are computed in.
std::string dtype_of(ModelImpl& model) {
  const std::string type = c10::toString(model.config().autocast.value_or(model.parameters().front().scalar_type()));
  bool high = false;
  for (const auto& item : model.named_modules()) {
    const auto* linear = item.value()->as<LinearImpl>();
    high = high || (linear && linear->precision == Precision::high);
  }
  return high ? type + ", precision high" : type;
}

}  // namespace

std::vector<ChoiceResult> evaluate_choices(ModelImpl& model, const Tokenizer& tokenizer, const ChoiceTask& task,
                                           const std::vector<std::string>& paths, const ChoiceOptions& options) {
  const int64_t context = options.context > 0 ? options.context : model.config().context;
  if (context > model.config().context)
    fail_usage("--ctx-size: ", context, ", want at most the model's context of ", model.config().context);
  if (!model.config().causal()) fail_usage("eval: the model is not causal, so endings have no likelihood");
  if (paths.empty()) fail_usage("eval: FILE is missing, want the questions of ", task.name);
  const std::vector<std::string> files = files_of(paths);
  const std::vector<ScoredItem> items = items_of(task, files, tokenizer, options, context);
  const auto batches = item_batches(items, static_cast<size_t>(options.batch_size));
  std::vector<size_t> sizes;
  std::vector<const ScoredItem*> order;
  for (const auto& batch : batches) {
    sizes.push_back(batch.size());
    for (const size_t index : batch) order.push_back(&items[index]);
  }
  const json head{{"task", task.name},
                  {"batch_size", options.batch_size},
                  {"dtype", dtype_of(model)},
                  {"items", hash_of_items(items)},
                  {"model", options.items.empty() ? "" : hash_of_model(model)}};
  ItemFile file(options.items, head, sizes,
                [&](size_t i, const json& line) { return i < order.size() && is_line_of(line, *order[i]); });
  std::vector<json> lines = file.done();
  Progress progress(task.name, static_cast<int64_t>(items.size()));
  size_t at = 0;
  for (const size_t size : sizes) {
    const auto batch = std::span(order).subspan(std::exchange(at, at + size), size);
    if (at <= file.done().size()) continue;
    check_interrupt();
    const std::vector<ItemScore> scores = score_items(model, batch);
    std::vector<json> fresh;
    for (size_t i = 0; i < size; ++i) fresh.push_back(item_line(*batch[i], scores[i], files[batch[i]->file]));
    file.append(fresh);
    lines.insert(lines.end(), fresh.begin(), fresh.end());
    progress.update(static_cast<int64_t>(at));
  }
  progress.finish();
  return choice_results(files, lines, task);
}

}  // namespace motet
