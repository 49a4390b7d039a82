#include "motet/experiments/experiment.h"

#include <algorithm>
#include <set>

#include "motet/core/error.h"
#include "motet/data/hash.h"
#include "motet/formats/toml.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kCellFormat = 1;  // changes when cells of the same options come to something else

// A table of the file, whose keys are asked for one by one; what nobody asked for is refused.
class Section {
 public:
  Section(const json& values, std::string place) : values_(values), place_(std::move(place)) {
    if (!values.is_object()) fail(place_, ": want a table");
  }

  std::string string(const char* key, const char* otherwise = nullptr) {
    const json* found = find(key);
    if (!found && otherwise) return otherwise;
    if (!found || !found->is_string()) fail(place_, ": want a string ", quote(key));
    return *found;
  }
  double number(const char* key, double otherwise) {
    const json* found = find(key);
    if (!found) return otherwise;
    if (!found->is_number()) fail(place_, ": ", key, " is no number");
    return *found;
  }
  std::vector<std::string> strings(const char* key) {
    std::vector<std::string> out;
    for (const json& one : list(key)) {
      if (!one.is_string()) fail(place_, ": ", key, ": want a list of strings");
      out.push_back(one);
    }
    return out;
  }
  std::vector<double> numbers(const char* key) {
    std::vector<double> out;
    for (const json& one : list(key)) {
      if (!one.is_number()) fail(place_, ": ", key, ": want a list of numbers");
      out.push_back(one);
    }
    return out;
  }
  json list(const char* key) {
    const json* found = find(key);
    if (!found) return json::array();
    if (!found->is_array()) fail(place_, ": ", key, ": want a list");
    return *found;
  }
  json object(const char* key) {
    const json* found = find(key);
    if (!found) return json::object();
    if (!found->is_object()) fail(place_, ": ", key, ": want a table");
    return *found;
  }
  bool has(const char* key) const { return values_.contains(key); }

  /// What nobody asked for.
  json rest() const {
    json out = json::object();
    for (const auto& [key, value] : values_.items())
      if (std::ranges::find(known_, key) == known_.end()) out[key] = value;
    return out;
  }
  void finish() const {
    const json unknown = rest();
    for (const auto& [key, value] : unknown.items()) fail(place_, ": ", unknown_name("key", key, known_));
  }
  const std::string& place() const { return place_; }

 private:
  const json* find(const char* key) {
    known_.emplace_back(key);
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &*found;
  }

  const json& values_;
  std::string place_;
  std::vector<std::string> known_;
};

Control control_of(const json& values, const std::string& place) {
  Section section(values, place + ": control");
  Control out{.name = section.string("name"), .arm = section.string("arm"), .metric = section.string("metric")};
  if (section.has("below") == section.has("above")) fail(section.place(), ": want one of below and above");
  out.below = section.has("below");
  out.limit = out.below ? section.number("below", 0) : section.number("above", 0);
  section.finish();
  return out;
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
  if (!out.places.empty() && std::ranges::max(out.places) == std::ranges::min(out.places))
    fail(section.place(), " ", quote(out.says), ": all places are equal");
  if (out.margin < 0) fail(section.place(), " ", quote(out.says), ": margin is ", out.margin, ", want at least 0");
  if (out.kind == ClaimKind::equal && out.margin <= 0)
    fail(section.place(), " ", quote(out.says), ": to be equal wants a margin above 0");
  section.finish();
  return out;
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
  for (const json& one : top.list("arm")) {
    Section section(one, place + ": arm");
    const std::string name = section.string("name");
    out.arms.push_back({name, section.rest()});
  }
  for (const json& one : top.list("scale")) {
    Section section(one, place + ": scale");
    ExperimentScale scale{.name = section.string("name")};
    const double seeds = section.number("seeds", 6);
    if (seeds < 1 || seeds > 24 || seeds != static_cast<double>(static_cast<int>(seeds)))
      fail(place, ": scale ", scale.name, ": seeds is ", seeds, ", want 1 to 24");
    scale.seeds = static_cast<size_t>(seeds);
    scale.options = section.rest();
    out.scales.push_back(std::move(scale));
  }
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
    for (const ExperimentArm& arm : experiment.arms) {
      ExperimentCell cell{.scale = scale.name,
                          .arm = arm.name,
                          .seed = static_cast<int64_t>(seed),
                          .options = options_of(arm),
                          .baseline = baseline,
                          .hash = {}};
      const json what{{"format", kCellFormat},
                      {"kind", experiment.kind},
                      {"options", cell.options},
                      {"baseline", baseline},
                      {"seed", seed}};
      cell.hash = hash_text(hash64(what.dump()));
      cells.push_back(std::move(cell));
    }
  return cells;
}

}  // namespace motet
