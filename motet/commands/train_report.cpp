#include "motet/commands/train_report.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "motet/compare/report.h"
#include "motet/core/error.h"
#include "motet/core/shell.h"
#include "motet/core/version.h"
#include "motet/core/words.h"
#include "motet/formats/toml.h"
#include "motet/probe/pictures.h"
#include "motet/report/table.h"

namespace motet {
namespace {

using nlohmann::json;

// The lines of metrics.jsonl by what they are about.
struct Lines {
  std::vector<json> steps, evals, diagnoses;
  json machine;          // the last one
  std::string commands;  // all that made steps, the first one first
};

// The same one twice in a row counts once.
void add_command(std::string& all, const std::string& command) {
  if (command.empty() || all == command || all.ends_with("\n" + command)) return;
  all += (all.empty() ? "" : "\n") + command;
}

Lines lines_of(const std::filesystem::path& path) {
  Lines lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {  // read_line would end at the signal that stopped the run
    json record = json::parse(line, nullptr, false);
    if (record.is_discarded() || !record.is_object()) fail(path.string(), ": is damaged, want a JSON object a line");
    if (record.contains("loss"))
      lines.steps.push_back(std::move(record));
    else if (record.contains("validation_loss"))
      lines.evals.push_back(std::move(record));
    else if (record.contains("layers"))
      lines.diagnoses.push_back(std::move(record));
    else
      lines.machine = std::move(record), add_command(lines.commands, lines.machine.value("command", ""));
  }
  return lines;
}

double number(const json& record, const std::string& key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_number() ? found->get<double>() : NAN;
}

std::vector<double> column(const std::vector<json>& records, const std::string& key) {
  std::vector<double> values;
  for (const json& record : records) values.push_back(number(record, key));
  return values;
}

// Of the layers or parts of each diagnosis: one line each.
class Lists {
 public:
  void add(const std::string& name, double step, double value) {
    auto found = std::find_if(lines_.begin(), lines_.end(), [&](const TraceLine& line) { return line.name == name; });
    if (found == lines_.end()) found = lines_.insert(lines_.end(), {name, {}, {}});
    found->step.push_back(step), found->value.push_back(value);
  }
  std::vector<TraceLine> lines() const { return lines_; }

 private:
  std::vector<TraceLine> lines_;
};

// Titles of what the probe and the optimiser tell; a mechanism's own numbers have their names.
struct Title {
  const char *key, *title, *unit, *explanation;
};
constexpr Title kTitles[] = {
    {"entropy", "Attention entropy", "nats", "Of the softmax weights, mean over heads: 0 looks at one key."},
    {"first_token", "Weight on the first token", "", "Mean over the heads and the queries behind it."},
    {"mixed_entropy", "Entropy after the mix", "nats", "Of the sizes of the mixed weights."},
    {"mixed_first_token", "First token after the mix", "", "Its part of the sizes of the mixed weights."},
    {"largest_logit", "Largest logit", "", "Before the softmax."},
};

void add_diagnoses(ReportData& report, const std::vector<json>& diagnoses) {
  std::map<std::string, Lists> found;
  Lists updates;
  for (const json& record : diagnoses) {
    const double step = number(record, "step");
    for (size_t i = 0; i < record["layers"].size(); ++i)
      for (const auto& item : record["layers"][i].items())
        if (!item.value().is_array())
          found[item.key()].add(text("layer ", i + 1), step, number(record["layers"][i], item.key()));
    for (const auto& item : record.at("update_ratio").items())
      updates.add(item.key(), step, number(record["update_ratio"], item.key()));
  }
  for (const Title& title : kTitles)
    if (const auto own = found.extract(title.key); !own.empty())
      report.traces.push_back({title.title, title.unit, title.explanation, false, own.mapped().lines()});
  for (const auto& [name, lists] : found) {
    std::string title = name;
    std::ranges::replace(title, '_', ' ');
    title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
    report.traces.push_back({title, "", "The mechanism's own, mean over heads and tokens.", false, lists.lines()});
  }
  if (!updates.lines().empty())
    report.traces.push_back({"Size of an update", "", "The norm of what a step changed over the norm of the weights.",
                             true, updates.lines()});
}

// Of all episodes, then of each slice.
std::vector<TraceLine> accuracy_lines(const std::vector<json>& evals) {
  Lists lists;
  for (const json& record : evals) {
    lists.add("all", number(record, "step"), number(record, "accuracy"));
    const json slices = record.value("accuracy_by_slice", json::object());
    for (const auto& slice : slices.items()) lists.add(slice.key(), number(record, "step"), slice.value());
  }
  return lists.lines();
}

void add_steps(ReportData& report, const std::string& mechanism, const RunConfig& run, const Lines& lines) {
  const std::vector<double> steps = column(lines.steps, "step");
  const double tokens = static_cast<double>(run.train.tokens_per_step());
  double seconds = 0;
  for (const double s : column(lines.steps, "seconds")) seconds += s;
  report.curves.push_back({mechanism, static_cast<uint64_t>(run.train.seed), steps, column(lines.steps, "loss"),
                           column(lines.evals, "step"), column(lines.evals, "validation_loss"), tokens,
                           seconds / static_cast<double>(steps.size())});
  const auto trace = [&](const char* title, const char* unit, const char* key, bool logarithmic) {
    report.traces.push_back({title, unit, "", logarithmic, {{"", steps, column(lines.steps, key)}}});
  };
  trace("Learning rate", "", "learning_rate", false);
  trace("Norm of the gradient", "", "gradient_norm", true);
  if (!lines.evals.empty() && lines.evals.back().contains("accuracy"))
    report.traces.push_back({"Accuracy", "",
                             "The part of the test episodes, or of the hidden tokens, that were told rightly.", false,
                             accuracy_lines(lines.evals)});
  trace("Speed", "tokens/s", "tokens_per_second", false);
}

std::string evaluation_text(const json& record) {
  const double bits = number(record, "bits_per_byte"), accuracy = number(record, "accuracy");
  return text(fixed(number(record, "validation_loss"), 4), " ± ", fixed(number(record, "standard_error"), 4),
              " nats a token", std::isfinite(bits) ? text(" (", fixed(bits, 4), " bits a byte)") : "",
              std::isfinite(accuracy) ? text(", the accuracy ", fixed(accuracy, 4)) : "");
}

std::string summary_of(const Lines& lines, const TrainPresentation& shown) {
  const int64_t steps = lines.steps.back().at("step");
  std::string said = shown.done ? ""
                                : text("The run stopped after step ", steps,
                                       shown.stopped_by.empty() ? "" : ": " + shown.stopped_by, ". ");
  if (lines.evals.empty()) return said + "It has not been evaluated.";
  return text(said, "The validation loss after step ", lines.evals.back().at("step").get<int64_t>(), " is ",
              evaluation_text(lines.evals.back()), ".");
}

void add_facts(ReportData& report, const Lines& lines, const RunConfig& run, const TextData& data, ModelImpl& model) {
  const json& last = lines.steps.back();
  report.facts = {
      {data.task ? "Task" : "Text", data.name},
      {"Parameters", short_count(static_cast<double>(model.num_parameters()))},
      {"Steps", text(last.at("step").get<int64_t>(), " of ", run.train.tokens_per_step(), " tokens")},
      {"Context", std::to_string(run.train.context)},
      {"Precision", word_of(train_dtypes(), run.train.dtype)},
      {"Device", text(lines.machine.value("device", "?"), ", threads ", lines.machine.value("threads", 0))},
      {"Matrix products at most", text(fixed(number(lines.machine, "peak_flops_per_second") * 1e-9, 1), " GFLOP/s")}};
  std::vector<double> used = column(lines.steps, "utilization");
  std::ranges::nth_element(used, used.begin() + static_cast<std::ptrdiff_t>(used.size() / 2));
  report.facts.emplace_back("Used of that", fixed(100 * used[used.size() / 2], 1) + " %");
  if (const double bytes = number(last, "peak_bytes"); std::isfinite(bytes))
    report.facts.emplace_back("Memory at most", fixed(bytes * 1e-6, 0) + " MB");
}

// The texts of each evaluation of a run, behind what names it beside others. A mixture takes a validation part of each
// source, as `eval` does where one of them is prepared; of texts alone it would take that of all together.
std::vector<std::pair<std::string, std::string>> evaluated_texts(const RunConfig& config) {
  std::string all;
  std::vector<std::pair<std::string, std::string>> each;
  bool together = config.mixture.empty();
  for (const std::string& path : config.texts) all += " " + shell_quoted(path);
  for (const MixtureSource& source : config.mixture) {
    together |= is_prepared_data(source.path);
    each.emplace_back(" " + source.path, " " + shell_quoted(source.path));
    all += " " + shell_quoted(source.path);
  }
  return together ? std::vector{std::pair(std::string(), all)} : each;
}

// Whether all of it is prepared data with a validation part of its own, of which --validation changes nothing.
bool has_own_validation(const std::vector<std::string>& paths) {
  const auto has = [](const std::string& path) {
    try {
      return is_prepared_data(path) && open_prepared_data(path).validation;
    } catch (const Error&) {  // it may be gone by now
      return false;
    }
  };
  return !paths.empty() && std::ranges::all_of(paths, has);
}

// `context`: of the model, which may be longer than that of the run.
void add_commands(ReportData& report, const std::filesystem::path& run, const RunConfig& config, int64_t context,
                  const TrainPresentation& shown) {
  const std::string folder = shell_quoted(run.string());
  const TrainOptions& train = config.train;
  std::string more;
  if (shown.done)
    more = train.steps > 0    ? text(" --steps ", 2 * train.steps)
           : train.tokens > 0 ? text(" --tokens ", 2 * train.tokens)
                              : text(" --minutes ", 2 * train.minutes);
  const std::string task = config.task.is_null() ? "" : config.task.at("name").get<std::string>() + " ";
  std::string options;
  std::vector<std::string> paths = config.texts;
  for (const MixtureSource& source : config.mixture) paths.push_back(source.path);
  if (task.empty() && !has_own_validation(paths))
    options += text(" --validation ", json(config.data.validation).dump());
  if (config.data.documents == Documents::apart) options += " --documents apart";
  if (task.empty() && context > train.context) options += text(" -c ", train.context);
  if (train.matmul_precision == Precision::high) options += " --precision high";
  report.further_commands = {
      {shown.done ? "Go on with a larger budget" : "Go on", "motet train --resume " + folder + more}};
  for (const auto& [what, texts] : evaluated_texts(config))
    report.further_commands.push_back(
        {"Evaluate" + what,
         text("motet eval ", train.objective == Objective::masked ? "masked " : task, "-m ", folder, options, texts)});
  if (config.model.causal && task.empty())
    report.further_commands.push_back(
        {"Generate", text("motet generate -m ", folder, " -p ",
                          shell_quoted(report.sample_prompt.empty() ? "The " : report.sample_prompt))});
}

}  // namespace

ReportData train_report(const std::filesystem::path& run, const RunConfig& config, const TextData& data,
                        ModelImpl& model, const TrainPresentation& shown) {
  Lines lines = lines_of(run / "metrics.jsonl");
  add_command(lines.commands, shown.command);
  const json resolved = config.resolved();
  const std::string mechanism = resolved.at("model").at("attention").at("mechanism");
  ReportData report;
  report.title = text("Training of ", mechanism, " on ", data.name);
  report.created = report_time();
  report.version = kVersion;
  report.baseline = mechanism;
  report.configuration = toml_text(resolved);
  report.command = lines.commands;
  if (!shown.sample.empty()) report.sample_prompt = shown.prompt, report.samples = {{mechanism, shown.sample}};
  add_commands(report, run, config, model.config().context, shown);
  if (lines.steps.empty()) return report;
  report.summary = summary_of(lines, shown);
  add_facts(report, lines, config, data, model);
  add_steps(report, mechanism, config, lines);
  add_diagnoses(report, lines.diagnoses);
  add_pictures(report, mechanism, model, add_sample_tokens(report, data, config.train.context));
  add_learned(report, mechanism, model);
  return report;
}

}  // namespace motet
