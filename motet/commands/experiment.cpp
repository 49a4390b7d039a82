#include <chrono>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/core/log.h"
#include "motet/core/progress.h"
#include "motet/experiments/rates.h"
#include "motet/experiments/report.h"
#include "motet/lab/lab.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Action {
  const ExperimentRequest& asked;
  const nlohmann::json& request;
  std::vector<Experiment> all;    // of the folder
  std::vector<Experiment> named;  // of the command line; without any: all
};

LabOptions lab_options(const Action& action, int64_t threads) {
  return {.data = action.asked.data, .device = action.asked.device, .threads = threads};
}

// "1/2" -> (0, 2): every second seed, from the first on. The arms of a seed stay together, for their difference counts.
std::pair<size_t, size_t> part_of(const std::string& cells) {
  if (cells.empty()) return {0, 1};
  size_t number = 0, parts = 0;
  char slash = 0;
  std::istringstream in(cells);
  if (!(in >> number >> slash >> parts) || slash != '/' || in.peek() != EOF || number < 1 || number > parts)
    fail_usage("--cells: ", quote(cells), ", want a part such as 1/2");
  return {number - 1, parts};
}

struct OpenCell {
  const Experiment* experiment;
  ExperimentCell cell;
};

const ExperimentScale& scale_asked(const Experiment& experiment, const ExperimentRequest& asked) {
  return asked.scale.empty() ? experiment.scales.front() : experiment.scale(asked.scale);
}

// "mha,plain, width 2": names between commas, which may hold some themselves: the longest one that stands there.
std::vector<std::string> arms_in(const std::string& asked, const std::vector<std::string>& known,
                                 const std::string& experiment) {
  std::vector<std::string> arms;
  for (size_t at = 0; at < asked.size();) {
    const std::string rest = asked.substr(at);
    std::string arm;
    for (const std::string& name : known)
      if (name.size() > arm.size() && (rest == name || rest.starts_with(name + ","))) arm = name;
    if (arm.empty())
      fail_usage("--arms: ", experiment, ": ", unknown_name("arm", rest.substr(0, rest.find(',')), known));
    arms.push_back(arm);
    at += arm.size() + 1;
  }
  return arms;
}

// What was asked for and has no result.
struct Work {
  std::vector<OpenCell> open;  // in order
  size_t later = 0;            // cells of arms that have not chosen their rates: which they are is not known yet
};

Work cells_to_run(const Action& action) {
  const auto [part, parts] = part_of(action.asked.cells);
  Work work;
  for (const Experiment& experiment : action.named) {
    if (!experiment.not_run.empty()) continue;
    std::vector<std::string> known;
    for (const ExperimentArm& arm : experiment.arms) known.push_back(arm.name);
    const std::vector<std::string> arms = arms_in(action.asked.arms, known, experiment.id);
    const auto asked_for = [&](const std::string& arm, int64_t seed) {
      if (static_cast<size_t>(seed - 1) % parts != part) return false;
      if (!arms.empty() && std::ranges::find(arms, arm) == arms.end()) return false;
      return action.asked.seeds == 0 || seed <= action.asked.seeds;
    };
    const ExperimentResults results = read_results(experiment);
    const ExperimentScale& scale = scale_asked(experiment, action.asked);
    for (ExperimentCell& cell : open_cells(experiment, scale, results))
      if (asked_for(cell.arm, cell.seed)) work.open.push_back({&experiment, std::move(cell)});
    const std::map<std::string, double> chosen = chosen_rates(experiment, scale, results);
    for (const std::string& arm : known)
      for (size_t seed = scale.sweep.seeds + 1; seed <= scale.seeds && !chosen.contains(arm); ++seed)
        work.later += asked_for(arm, static_cast<int64_t>(seed));
  }
  return work;
}

void warn_of_void(const Experiment& experiment, const ExperimentResults& results) {
  for (const auto& [arm, cells] : void_cells(experiment, results))
    log_warn(text(experiment.id, ": experiment.toml has changed since its results: ", cells, " cells of ", arm,
                  " are void"));
}

// Refuses what its kind does not know, before anything runs, and an arm that resolves otherwise than it did when the
// cells ran that it has: they would not be equal.
void check_configuration(Lab& lab, const OpenCell& open, const ExperimentResults& results) {
  const nlohmann::json now = lab.configuration(*open.experiment, open.cell);
  const auto stored = results.configurations.find({open.cell.scale, open.cell.arm});
  const std::vector<ExperimentCell> cells = cells_of(*open.experiment, open.experiment->scale(open.cell.scale));
  const auto has_cells = [&](const std::string& arm) {
    return std::ranges::any_of(
        cells, [&](const ExperimentCell& cell) { return cell.arm == arm && results.cells.contains(cell.hash); });
  };
  for (const auto& [who, other] : results.configurations)
    if (who.first == open.cell.scale && has_cells(who.second) && now.contains("data") && other.contains("data"))
      if (const std::string changed = changed_key(other["data"], now["data"], "data"); !changed.empty())
        fail(open.experiment->id, ", ", open.cell.arm, ": ", changed, " since the results of ", who.second,
             ", want the data that it had");
  if (stored == results.configurations.end() || !has_cells(open.cell.arm)) return;
  const std::string changed = changed_key(stored->second, now);
  if (!changed.empty())
    fail(open.experiment->id, ", ", open.cell.arm, ": ", changed,
         " since its results, want it as it was, or results.json without them");
}

void show_plan(const Action& action, const Work& work, int64_t jobs) {
  const std::vector<OpenCell>& open = work.open;
  at::set_num_threads(1);
  Lab lab(lab_options(action, 1));
  Table table{.columns = {{"id", Align::left},
                          {"scale", Align::left},
                          {"arm", Align::left},
                          {"cells"},
                          {"a cell", Align::right, "min", "cell_minutes"},
                          {"all", Align::right, "min", "minutes"}}};
  double total = 0;
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<const OpenCell*>> groups;
  std::vector<std::tuple<std::string, std::string, std::string>> order;
  for (const OpenCell& one : open) {
    const auto key = std::tuple(one.experiment->id, one.cell.scale, one.cell.arm);
    if (!groups.contains(key)) order.push_back(key);
    groups[key].push_back(&one);
  }
  bool unknown = false;
  Progress progress("measuring", static_cast<int64_t>(order.size()));
  for (size_t i = 0; i < order.size(); ++i) {
    check_interrupt();
    const auto& cells = groups[order[i]];
    const std::optional<double> seconds = lab.seconds(*cells[0]->experiment, cells[0]->cell);
    const double all = seconds.value_or(0) / 60 * static_cast<double>(cells.size());
    unknown |= !seconds, total += all;
    const auto& [id, scale, arm] = order[i];
    table.rows.push_back({id,
                          scale,
                          arm,
                          {std::to_string(cells.size()), cells.size()},
                          seconds ? Cell(fixed(*seconds / 60, 2), *seconds / 60) : Cell("-"),
                          seconds ? Cell(fixed(all, 1), all) : Cell("-")});
    progress.update(static_cast<int64_t>(i) + 1);
  }
  progress.finish();
  table.note =
      text(open.size(), " cells, ", fixed(total, 1), " minutes of one job", unknown ? " and what is not known" : "",
           jobs > 1 ? text(", ", fixed(total / static_cast<double>(jobs), 1), " of ", jobs) : "",
           work.later > 0 ? text("; ", work.later, " more follow once the rates are chosen") : "");
  print_table(table, action.request);
}

// What is wrong with a metric that a claim, a control or the choice of a rate wants of an arm, when it is none of the
// names; "" when all are.
std::string missing_metric(const Experiment& experiment, const std::string& scale, const std::string& own,
                           const std::vector<std::string>& names) {
  std::string missing;
  const auto want = [&](const std::string& metric, const std::string& arm) {
    if (arm == own && !is_measured(metric, names)) missing = unknown_name("metric", metric, names);
  };
  for (const Claim& claim : experiment.claims)
    for (const std::string& arm : claim.arms) want(claim.metric, arm);
  for (const Control& control : experiment.controls) want(control.metric, control.arm);
  if (const RateSweep& sweep = experiment.scale(scale).sweep; !sweep.factors.empty()) want(sweep.metric, own);
  return missing;
}

// The same of a cell that ended.
std::string missing_metric(const Experiment& experiment, const CellResult& result) {
  std::vector<std::string> names;
  for (const auto& [name, value] : result.metrics) names.push_back(name);
  return result.failure.empty() ? missing_metric(experiment, result.scale, result.arm, names) : "";
}

// Refuses, before anything is trained, metrics that the open cells will not have, or that one of their arm has not.
void check_metrics(const Action& action, const std::vector<OpenCell>& open) {
  Lab lab(lab_options(action, 1));
  std::set<std::pair<const Experiment*, std::string>> checked;
  std::map<const Experiment*, ExperimentResults> results;
  for (const auto& [experiment, cell] : open) {
    if (!checked.insert({experiment, cell.arm}).second) continue;
    const auto check = [&, &id = experiment->id, &arm = cell.arm](const std::string& missing) {
      if (!missing.empty()) fail(id, ", ", arm, ": ", missing);
    };
    check(missing_metric(*experiment, cell.scale, cell.arm, lab.metrics(*experiment, cell)));
    if (!results.contains(experiment)) results.emplace(experiment, read_results(*experiment));
    const ExperimentResults& stored = results.at(experiment);
    for (const ExperimentCell& one : cells_of(*experiment, experiment->scale(cell.scale)))
      if (const auto found = stored.cells.find(one.hash); one.arm == cell.arm && found != stored.cells.end())
        check(missing_metric(*experiment, found->second));
  }
}

std::string called(const OpenCell& one) {
  const auto& [experiment, cell] = one;
  return text(experiment->id, ", ", cell.arm, cell.rate == 1 ? "" : text(", rate x ", cell.rate), ", seed ", cell.seed);
}

// Works cells off, some at once; each that ends is in results.json.
class CellRuns {
 public:
  CellRuns(const Action& action, int64_t threads) : action_(action), lab_(lab_options(action, threads)) {}

  /// False when it was interrupted or the time was up.
  bool work(std::vector<OpenCell> open, int64_t jobs) {
    open_ = std::move(open), next_ = 0;
    const size_t before = ended_;
    std::set<std::tuple<const Experiment*, std::string, double>> checked;
    for (const OpenCell& one : open_)
      if (checked.insert({one.experiment, one.cell.arm, one.cell.rate}).second) {
        const ExperimentResults stored = read_results(*one.experiment);
        check_configuration(lab_, one, stored);
        for (const ExperimentCell& cell : cells_of(*one.experiment, one.experiment->scale(one.cell.scale))) {
          const auto found = stored.cells.find(cell.hash);
          if (found != stored.cells.end() && found->second.failure.empty() && found->second.machine == lab_.machine())
            took({one.experiment->id, cell.scale, cell.arm}, found->second.seconds);
        }
      }
    progress_.emplace("cells", static_cast<int64_t>(before + open_.size()));
    std::vector<std::thread> workers;
    for (int64_t i = 0; i < jobs; ++i) workers.emplace_back([&] { worker(); });
    for (std::thread& t : workers) t.join();
    progress_->finish();
    if (failure_) std::rethrow_exception(failure_);
    return ended_ - before == open_.size();
  }

  size_t ended() const { return ended_; }
  bool was_interrupted() const { return interrupted_; }

 private:
  using Alike = std::tuple<std::string, std::string, std::string>;  // experiment, scale, arm

  void took(const Alike& alike, double seconds) {
    double& longest = seconds_[alike];
    longest = std::max(longest, seconds);
  }

  // What a cell will take: as the longest of its arm did on this machine, else as a few steps tell; where they cannot,
  // as the longest that has ended meanwhile.
  double expected_seconds(const OpenCell& next) {
    const Alike alike{next.experiment->id, next.cell.scale, next.cell.arm};
    {
      const std::scoped_lock lock(mutex_);
      for (const auto* known : {&seconds_, &measured_})
        if (const auto found = known->find(alike); found != known->end()) return found->second;
    }
    const std::optional<double> measured = lab_.seconds(*next.experiment, next.cell);
    const std::scoped_lock lock(mutex_);
    return measured ? measured_[alike] = *measured : longest_;
  }

  bool time_is_left(const OpenCell& next) {
    if (action_.asked.minutes <= 0) return true;
    const auto left = [&] {
      return action_.asked.minutes * 60 - std::chrono::duration<double>(Clock::now() - start_).count();
    };
    return left() > 0 && expected_seconds(next) < left();
  }

  void worker() {
    at::set_num_threads(static_cast<int>(lab_.options().threads));
    while (true) {
      size_t next;
      {
        const std::scoped_lock lock(mutex_);
        if (failure_ || interrupted_ || time_is_up_ || next_ == open_.size()) return;
        next = next_++;
      }
      try {
        if (time_is_left(open_[next])) {
          run(next);
          continue;
        }
        const std::scoped_lock lock(mutex_);
        time_is_up_ = true;
      } catch (const Interrupted&) {
        const std::scoped_lock lock(mutex_);
        interrupted_ = true;
      } catch (...) {
        const std::scoped_lock lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
      }
    }
  }

  void run(size_t number) {
    const auto& [experiment, cell] = open_[number];
    const CellResult result = lab_.run(*experiment, cell, [&](double part) {
      const std::scoped_lock lock(mutex_);
      if (failure_) throw Interrupted("stopped: another cell failed");
      progress_->update(static_cast<int64_t>(ended_), text(called(open_[number]), ", ", std::lround(part * 100), " %"));
    });
    const nlohmann::json configuration = lab_.configuration(*experiment, cell);
    const std::string missing = missing_metric(*experiment, result);
    const std::scoped_lock lock(mutex_);
    add_results(*experiment,
                {.cells = {{cell.hash, result}}, .configurations = {{{cell.scale, cell.arm}, configuration}}});
    if (result.failure.empty()) took({experiment->id, cell.scale, cell.arm}, result.seconds);
    longest_ = std::max(longest_, result.seconds);
    progress_->update(static_cast<int64_t>(++ended_), called(open_[number]) + " ended");
    if (!missing.empty()) fail(experiment->id, ", ", cell.arm, ": ", missing);
    if (!result.failure.empty()) log_warn(called(open_[number]) + ": " + result.failure);
  }

  const Action& action_;
  std::vector<OpenCell> open_;
  Lab lab_;
  std::optional<Progress> progress_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::map<Alike, double> seconds_, measured_;  // of the longest cell; what a few steps tell
  double longest_ = 0;                          // of the cells that ended here
  bool interrupted_ = false, time_is_up_ = false;
  size_t next_ = 0, ended_ = 0;
};

std::string text_of(const fs::path& file) { return fs::exists(file) ? read_file(file) : ""; }

std::vector<Reported> reported(const std::vector<Experiment>& experiments) {
  std::vector<Reported> all;
  for (const Experiment& one : experiments) all.push_back({one, read_results(one)});
  return all;
}

void show_verdicts(const Action& action) {
  for (const Reported& one : reported(action.named)) warn_of_void(one.experiment, one.results);
  print_table(experiments_table(reported(action.named)), action.request);
}

int list(const Action& action) {
  Table table{
      .columns = {
          {"id", Align::left}, {"claim", Align::left}, {"scale", Align::left}, {"cells"}, {"verdict", Align::left}}};
  for (const auto& [experiment, results] : reported(action.named)) {
    if (experiment.scales.empty()) table.rows.push_back({experiment.id, experiment.claim, "-", "-", "not run here"});
    for (const ExperimentScale& scale : experiment.scales) {
      const size_t ended =
          known_cells(experiment, scale, results).size() - open_cells(experiment, scale, results).size();
      std::string words;
      for (const Verdict& verdict : verdicts(experiment, scale, results))
        words += text(words.empty() ? "" : ", ", word_of(verdict_words(), verdict.word));
      table.rows.push_back({experiment.id, experiment.claim, scale.name,
                            text(ended, " of ", planned_cells(experiment, scale)),
                            words.empty() ? "not run yet" : words});
    }
  }
  print_table(table, action.request);
  return 0;
}

int run(const Action& action) {
  if (action.named.size() == action.all.size() && !action.request.contains("ids"))
    fail_usage("experiment run: want an id, one of experiment list, or all of them");
  for (const Experiment& one : action.named)
    if (!one.not_run.empty()) log_warn(text(one.id, " is not run here: ", one.not_run));
  const bool on_cpu = parse_device(action.asked.device).is_cpu();  // throws, whether or not a cell is left to run on it
  const int64_t processors = request_threads(action.request);
  const int64_t wanted = action.asked.jobs > 0 ? action.asked.jobs : on_cpu ? processors : 1;
  Work work = cells_to_run(action);
  const bool alone = std::ranges::any_of(work.open, [](const OpenCell& one) { return Lab::alone(*one.experiment); });
  if (alone && action.asked.jobs > 1) fail_usage("--jobs: ", action.asked.jobs, ", want 1: these cells measure time");
  const int64_t jobs =
      alone ? 1 : std::max<int64_t>(1, std::min<int64_t>(wanted, static_cast<int64_t>(work.open.size() + work.later)));
  check_metrics(action, work.open);
  if (action.request.value("dry_run", false)) return show_plan(action, work, jobs), 0;
  for (const Experiment& one : action.named) warn_of_void(one, read_results(one));
  CellRuns runs(action, std::max<int64_t>(processors / jobs, 1));
  // What follows from the rates that they chose is open when all of these have ended.
  for (; !work.open.empty(); work = cells_to_run(action)) {
    if (runs.work(std::move(work.open), jobs)) continue;
    const std::string left =
        text(runs.ended(), " cells have ended; to go on: ", action.request.value("command", "the same command"));
    if (runs.was_interrupted()) throw Interrupted("experiment: stopped; " + left);
    log_info("the time is up; " + left);
    break;
  }
  show_verdicts(action);
  return 0;
}

// What a file holds, and should.
struct Written {
  fs::path file;
  std::string text;
};

std::vector<Written> texts_of(const Action& action) {
  std::vector<Written> all;
  for (const auto& [experiment, results] : reported(action.all)) {
    const fs::path file = experiment.folder / "README.md";
    all.push_back({file, readme_with(text_of(file), experiment, results, file.string())});
    if (!results.cells.empty()) all.push_back({experiment.folder / "results.json", results_json(experiment)});
  }
  const fs::path above = fs::path(action.asked.folder).lexically_normal().parent_path();
  if (fs::exists(above / "docs"))
    all.push_back({above / "docs/experiments.md", experiments_text(reported(action.all))});
  const fs::path readme = above / "README.md";
  if (const std::string whole = text_of(readme); whole.find("<!-- experiments -->") != std::string::npos)
    all.push_back({readme, between_marks(whole, "experiments", summary_text(reported(action.all)), readme.string())});
  return all;
}

int report(const Action& action) {
  const std::vector<Written> texts = texts_of(action);
  std::string stale;
  for (const auto& [experiment, results] : reported(action.all)) {
    warn_of_void(experiment, results);
    if (!void_cells(experiment, results).empty())
      stale += (stale.empty() ? "" : ", ") + (experiment.folder / "results.json").string();
  }
  if (action.request.value("check", false)) {
    for (const Written& one : texts)
      if (text_of(one.file) != one.text) stale += (stale.empty() ? "" : ", ") + one.file.string();
    if (!stale.empty())
      fail("experiment report --check: not what the results say: ", stale, ", want motet experiment report");
    return show_verdicts(action), 0;
  }
  if (action.request.contains("ids"))  // who names an experiment has done with what it no longer has
    for (const auto& [experiment, results] : reported(action.named))
      if (!void_cells(experiment, results).empty()) drop_void(experiment);
  for (const Written& one : texts_of(action)) write_file_atomic(one.file, one.text);
  const fs::path page =
      fs::path("runs") / "experiments" / (action.named.size() == 1 ? action.named[0].id + ".html" : "all.html");
  fs::create_directories(page.parent_path());
  write_file_atomic(page, html_report(experiments_page(reported(action.named), action.request.value("command", ""))));
  show_verdicts(action);
  log_info("report: " + page.string());
  return 0;
}

// What of the other machine's cells is of this experiment and not here yet.
ExperimentResults mergeable(const Experiment& own, const ExperimentResults& other) {
  const ExperimentResults here = read_results(own);
  ExperimentResults more;
  size_t known = 0;
  for (const ExperimentScale& scale : own.scales)
    for (const ExperimentCell& cell : cells_of(own, scale)) {
      const auto found = other.cells.find(cell.hash);
      if (found == other.cells.end()) continue;
      ++known;
      if (const auto ours = here.cells.find(cell.hash); ours != here.cells.end()) {
        if (ours->second.metrics != found->second.metrics)
          log_warn(
              text(own.id, ", ", cell.arm, ", seed ", cell.seed, ": is there already with other numbers, which stay"));
        continue;
      }
      more.cells.insert(*found);
      if (const auto of = other.configurations.find({cell.scale, cell.arm}); of != other.configurations.end())
        more.configurations.insert(*of);
    }
  if (other.cells.size() > known)
    log_warn(text(own.id, ": ", other.cells.size() - known, " cells there are none of this experiment.toml"));
  const auto refuse = [&](const std::string& arm, const std::string& changed) {
    if (!changed.empty()) fail(own.id, ", ", arm, ": ", changed, " there, so its cells cannot stand beside ours");
  };
  for (const auto& [who, theirs] : more.configurations)
    for (const auto& [ours_of, ours] : here.configurations) {
      if (who == ours_of) refuse(who.second, changed_key(ours, theirs));
      if (who.first == ours_of.first && ours.contains("data") && theirs.contains("data"))
        refuse(who.second, changed_key(ours["data"], theirs["data"], "data"));
    }
  return more;
}

// Cells that another machine ran, of a folder of experiments.
int merge(const Action& action) {
  const std::vector<std::string> from = action.request.value("ids", std::vector<std::string>());
  if (from.size() != 1) fail_usage("experiment merge: want one folder with experiments of another machine");
  std::vector<std::pair<const Experiment*, ExperimentResults>> taken;
  for (const Experiment& other : read_experiments(from[0])) {  // all are looked at before anything is written
    const Experiment& own = find_experiment(action.all, other.id);
    taken.emplace_back(&own, mergeable(own, read_results(other)));
  }
  size_t cells = 0;
  for (const auto& [own, more] : taken) {
    cells += more.cells.size();
    if (!more.cells.empty()) add_results(*own, more);
  }
  log_info(text(cells, " cells are merged"));
  return 0;
}

// What an action does not read.
void refuse_flags_of_others(const nlohmann::json& request, const std::string& action) {
  const std::string what = "experiment " + action;
  if (action != "run")
    refuse_flags(request, what, {"data", "scale", "arms", "seeds", "cells", "minutes", "jobs", "device", "dry_run"});
  if (action != "report") refuse_flags(request, what, {"check"});
  if (action == "merge") refuse_flags(request, what, {"output"});
}

}  // namespace

int run_experiment(const nlohmann::json& request) {
  const std::vector<std::pair<std::string, int (*)(const Action&)>> actions{
      {"list", list}, {"run", run}, {"report", report}, {"merge", merge}};
  nlohmann::json own = request;
  std::vector<std::string> words = request.value("arguments", std::vector<std::string>());
  if (words.empty()) words = {"list"};
  const auto act = value_of(actions, words[0], "action");
  refuse_flags_of_others(request, words[0]);
  words.erase(words.begin());
  if (!words.empty()) own["ids"] = words;
  const ExperimentRequest asked = read_request(experiment_options(), request);
  Action action{.asked = asked, .request = own, .all = read_experiments(asked.folder), .named = {}};
  if (act != merge)
    for (const std::string& id : words) action.named.push_back(find_experiment(action.all, id));
  if (action.named.empty()) action.named = action.all;
  return act(action);
}

}  // namespace motet
