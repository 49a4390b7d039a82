#include "motet/experiments/experiment.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "motet/core/error.h"
#include "motet/data/hash.h"
#include "motet/experiments/section.h"
#include "motet/formats/toml.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kCellFormat = 1;  // changes when cells of the same options come to something else

Control control_of(const json& values, const std::string& place) {
  Section section(values, place + ": control");
  Control out{.name = section.string("name"), .arm = section.string("arm"), .metric = section.string("metric")};
  if (section.has("below") == section.has("above")) fail(section.place(), ": want one of below and above");
  out.below = section.has("below");
  out.limit = out.below ? section.number("below", 0) : section.number("above", 0);
  section.finish();
  return out;
}

// A trend is counted from the first place to the last (verdict.cpp), so the others have to lie between, in their order.
bool rise_or_fall(const std::vector<double>& places) {
  const auto none = [&](const auto& wrong) { return std::ranges::adjacent_find(places, wrong) == places.end(); };
  return none([](double a, double b) { return !(a < b); }) || none([](double a, double b) { return !(a > b); });
}

void check_named_once(const Claim& claim, const std::string& place) {
  std::set<std::string> named;
  for (const std::string& arm : claim.arms)
    if (!named.insert(arm).second)
      fail(place, " ", quote(claim.says), ": names ", quote(arm), " twice, want other arms");
}

Claim claim_of(const json& values, const std::string& place) {
  Section section(values, place + ": verdict");
  Claim out{.says = section.string("says"), .metric = section.string("metric")};
  std::vector<std::string> kinds;
  for (const auto& [word, kind] : claim_kinds())
    if (section.has(word.c_str())) kinds.push_back(word), out.kind = kind, out.arms = section.strings(word.c_str());
  if (kinds.size() != 1)
    fail(section.place(), " ", quote(out.says), ": want one of less, equal, falls, rises, above, below");
  const bool limited = out.kind == ClaimKind::above || out.kind == ClaimKind::below;
  out.places = section.numbers("places");
  out.margin = section.number("margin", 0);
  if (limited != section.has("limit")) fail(section.place(), " ", quote(out.says), ": a limit is of above and below");
  out.limit = section.number("limit", 0);
  try {
    out.test = value_of(claim_tests(), section.string("test", "t"), "test");
  } catch (const UsageError& e) {
    fail(section.place(), " ", quote(out.says), ": ", e.what());
  }
  const size_t least = limited ? 1 : 2;
  if (out.arms.size() < least) fail(section.place(), " ", quote(out.says), ": want at least ", least, " arms");
  if (!out.places.empty() && out.places.size() != out.arms.size())
    fail(section.place(), " ", quote(out.says), ": has ", out.places.size(), " places, want one for each of its ",
         out.arms.size(), " arms");
  check_named_once(out, section.place());
  if (!rise_or_fall(out.places))
    fail(section.place(), " ", quote(out.says),
         ": places: want numbers that rise, or that fall, from arm to arm, as in [1, 2, 4]");
  if (out.margin < 0) fail(section.place(), " ", quote(out.says), ": margin is ", out.margin, ", want at least 0");
  if (out.kind == ClaimKind::equal && out.margin <= 0)
    fail(section.place(), " ", quote(out.says), ": to be equal wants a margin above 0");
  section.finish();
  return out;
}

void check_rates(const std::vector<double>& factors, const std::string& place) {
  for (size_t i = 0; i < factors.size(); ++i)
    if (factors[i] <= (i == 0 ? 0 : factors[i - 1])) fail(place, ": rates: want factors that rise, as in [0.5, 1, 2]");
}

// "highest accuracy" -> what chooses among rates.
void choose_by(RateSweep& sweep, const std::string& given, const std::string& place) {
  const size_t space = given.find(' ');
  const std::string word = given.substr(0, space);
  if (space == std::string::npos || (word != "lowest" && word != "highest"))
    fail(place, ": rate_by is ", quote(given),
         ", want lowest or highest and a metric, as in \"lowest validation_loss\"");
  sweep.highest = word == "highest", sweep.metric = given.substr(space + 1);
}

RateSweep sweep_of(Section& section, size_t seeds, const std::string& place) {
  RateSweep out{.factors = section.numbers("rates")};
  const double own = section.number("rate_seeds", std::min(2.0, static_cast<double>(seeds)));
  choose_by(out, section.string("rate_by", "lowest validation_loss"), place);
  if (!section.has("rates")) {
    if (section.has("rate_seeds") || section.has("rate_by")) fail(place, ": rate_seeds and rate_by want rates");
    return out;
  }
  check_rates(out.factors, place);
  if (out.factors.size() < 2) fail(place, ": rates: has ", out.factors.size(), ", want at least 2");
  if (own < 1 || own > static_cast<double>(seeds) || own != std::floor(own))
    fail(place, ": rate_seeds is ", own, ", want 1 to its ", seeds, " seeds");
  out.seeds = static_cast<size_t>(own);
  return out;
}

ExperimentScale scale_of(const json& values, const std::string& place) {
  Section section(values, place + ": scale");
  ExperimentScale scale{.name = section.string("name")};
  const std::string own = place + ": scale " + scale.name;
  const double seeds = section.number("seeds", 6);
  if (seeds < 1 || seeds > 24 || seeds != std::floor(seeds)) fail(own, ": seeds is ", seeds, ", want 1 to 24");
  scale.seeds = static_cast<size_t>(seeds);
  scale.sweep = sweep_of(section, scale.seeds, own);
  scale.options = section.rest();
  return scale;
}

ExperimentArm arm_of(const json& values, const std::string& place) {
  Section section(values, place + ": arm");
  ExperimentArm arm{.name = section.string("name"), .options = {}, .rates = section.numbers("rates")};
  check_rates(arm.rates, place + ": arm " + quote(arm.name));
  arm.options = section.rest();
  return arm;
}

void check_arms(const Experiment& experiment, const std::string& place) {
  std::vector<std::string> names;
  for (const ExperimentArm& arm : experiment.arms) {
    if (std::ranges::find(names, arm.name) != names.end()) fail(place, ": arm ", quote(arm.name), " is there twice");
    names.push_back(arm.name);
  }
  const auto check = [&](const std::string& arm, const std::string& what) {
    if (std::ranges::find(names, arm) == names.end()) fail(place, ": ", what, ": ", unknown_name("arm", arm, names));
  };
  for (const Claim& claim : experiment.claims)
    for (const std::string& arm : claim.arms) check(arm, "verdict " + quote(claim.says));
  for (const Control& control : experiment.controls) check(control.arm, "control " + quote(control.name));
}

Experiment checked(Experiment out, const std::string& place) {
  if (!out.not_run.empty()) return out;
  if (out.arms.empty()) fail(place, ": want an [[arm]]");
  if (out.scales.empty()) fail(place, ": want a [[scale]]");
  if (out.claims.empty()) fail(place, ": want a [[verdict]]");
  if (out.controls.empty())
    fail(place, ": its arms have no control, want a [[control]]: what must hold for it to mean anything");
  check_arms(out, place);
  for (const ExperimentScale& scale : out.scales)
    if (!scale.sweep.factors.empty() && out.kind != "train")
      fail(place, ": scale ", scale.name, ": rates: cells of kind ", out.kind, " have none, want kind train");
  return out;
}

// "S2_key_size" -> "S2", "key size".
void name_it(Experiment& out, const fs::path& folder) {
  const std::string name = folder.filename().string();
  const size_t end = name.find('_');
  out.id = name.substr(0, end);
  if (out.id.empty() || end == std::string::npos)
    fail(folder.string(), ": want a folder named ID_name, as in S2_key_size");
  out.title = name.substr(end + 1);
  std::ranges::replace(out.title, '_', ' ');
  out.folder = folder;
}

// "S2" -> ("S", 2): S10 comes behind S9.
std::pair<std::string, long> order_of(const std::string& id) {
  const size_t digit = id.find_first_of("0123456789");
  return {id.substr(0, digit), digit == std::string::npos ? 0 : std::strtol(id.c_str() + digit, nullptr, 10)};
}

}  // namespace

const std::vector<double>& ExperimentScale::rates_of(const ExperimentArm& arm) const {
  static const std::vector<double> as_given{1};
  if (sweep.factors.empty()) return as_given;
  return arm.rates.empty() ? sweep.factors : arm.rates;
}

const ExperimentScale& Experiment::scale(const std::string& name) const {
  std::vector<std::string> known;
  for (const ExperimentScale& one : scales) {
    if (one.name == name) return one;
    known.push_back(one.name);
  }
  fail_usage(id, ": ", unknown_name("scale", name, known));
}

Experiment read_experiment(const fs::path& folder) {
  const std::string place = (folder / "experiment.toml").string();
  const json file = read_toml(place);
  Section top(file, place);
  Experiment out;
  name_it(out, folder.lexically_normal());
  out.claim = top.string("claim"), out.source = top.string("source"), out.published = top.string("published", "");
  out.deviations = top.strings("deviations");
  out.not_run = top.string("not_run", "");
  out.kind = top.string("kind", out.not_run.empty() ? nullptr : "");
  for (const json& one : top.list("arm")) out.arms.push_back(arm_of(one, place));
  for (const json& one : top.list("scale")) out.scales.push_back(scale_of(one, place));
  for (const json& one : top.list("control")) out.controls.push_back(control_of(one, place));
  for (const json& one : top.list("verdict")) out.claims.push_back(claim_of(one, place));
  out.options = top.object("options");
  top.finish();
  return checked(std::move(out), place);
}

std::vector<Experiment> read_experiments(const fs::path& root) {
  if (!fs::is_directory(root)) fail(root.string(), ": is no folder, want that of the experiments");
  std::vector<Experiment> all;
  for (const fs::directory_entry& entry : fs::directory_iterator(root))
    if (fs::exists(entry.path() / "experiment.toml")) all.push_back(read_experiment(entry.path()));
  std::ranges::sort(all, {}, [](const Experiment& e) { return order_of(e.id); });
  for (size_t i = 1; i < all.size(); ++i)
    if (all[i].id == all[i - 1].id)
      fail(all[i - 1].folder.string(), " and ", all[i].folder.string(), ": two experiments of one id");
  return all;
}

const Experiment& find_experiment(const std::vector<Experiment>& all, const std::string& id) {
  std::vector<std::string> known;
  for (const Experiment& one : all) {
    if (one.id == id) return one;
    known.push_back(one.id);
  }
  fail_usage(unknown_name("experiment", id, known));
}

std::vector<ExperimentCell> cells_of(const Experiment& experiment, const ExperimentScale& scale) {
  const auto options_of = [&](const ExperimentArm& arm) {
    json options = experiment.options;
    options.merge_patch(scale.options);
    options.merge_patch(arm.options);
    return options;
  };
  std::vector<ExperimentCell> cells;
  if (experiment.arms.empty()) return cells;
  const json baseline = options_of(experiment.arms.front());
  for (size_t seed = 1; seed <= scale.seeds; ++seed)
    for (const ExperimentArm& arm : experiment.arms)
      for (const double rate : scale.rates_of(arm)) {
        ExperimentCell cell{.scale = scale.name,
                            .arm = arm.name,
                            .seed = static_cast<int64_t>(seed),
                            .rate = rate,
                            .options = options_of(arm),
                            .baseline = baseline,
                            .hash = {}};
        json what{{"format", kCellFormat},
                  {"kind", experiment.kind},
                  {"options", cell.options},
                  {"baseline", baseline},
                  {"seed", seed}};
        if (rate != 1) what["rate"] = rate;
        cell.hash = hash_text(hash64(what.dump()));
        cells.push_back(std::move(cell));
      }
  return cells;
}

}  // namespace motet
