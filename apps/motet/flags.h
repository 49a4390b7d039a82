// Flags of the library's tables of options: what an option is called, takes and means stands there, once.
#pragma once

#include <map>

#include "apps/motet/cli.h"
#include "motet/core/options.h"

namespace motet {

/// How the command line shows an option, where its table does not say it.
struct Shown {
  std::string letter = {};  // the short name
  std::string value = {};   // what --help calls the value; by default N, X, NAME or TEXT by the option's type
  std::string name = {};    // the long name; by default the option's, with dashes
};

/// The flag of one option. `target` is the field of the request or the key of the configuration; `otherwise` the
/// default that --help shows, if the option's own is not what holds.
Flag flag_of(const Option&, const std::string& target, const Shown& = {}, const nlohmann::json& otherwise = nullptr);

/// The flags of all options of a table, in its order; a request has a field of each name.
std::vector<Flag> flags_of(const OptionTable&, const std::map<std::string, Shown>& = {});

/// --config, --set and the keys of a run's configuration that have a flag, for compare and train, which begin from
/// `base`.
std::vector<Flag> configuration_flags(const nlohmann::json& base);

/// The texts of train and compare.
Positional training_texts();

/// Puts flags behind others.
std::vector<Flag> operator+(std::vector<Flag>, const std::vector<Flag>&);

}  // namespace motet
