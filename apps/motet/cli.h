// The command line as data: each subcommand is a table, and cli.cpp turns a table and arguments into a request.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace motet {

enum class FlagKind {
  toggle,  // takes no value; true in the request
  text,    // takes one value, a string in the request: the library's tables check type and range
  list,    // may be given several times; an array of strings in the request
};

struct Flag {
  std::string long_name;        // without dashes
  std::string target;           // a configuration key such as "train.steps" (has a dot), or a field of the request
  std::string value = {};       // what --help calls the value: "N", "FILE"; empty for a toggle
  std::string help = {};        // one sentence without full stop
  std::string short_name = {};  // one letter or empty
  FlagKind kind = FlagKind::text;
};

// Arguments without dashes.
struct Positional {
  std::string field;      // of the request; empty: the subcommand takes none
  std::string name = {};  // as --help shows it: "TEXT"
  std::string help = {};
  size_t least = 0;
  size_t most = 0;  // 1: a string in the request, more: an array
};

struct Subcommand {
  std::string name;
  std::string summary;
  std::vector<Flag> flags;
  Positional positional = {};
  std::vector<std::string> examples = {};  // without the program's name; each works as printed
  bool has_results = true;                 // and so -o and --json
};

// All subcommands in the order of the help.
const std::vector<Subcommand>& subcommands();

// Its own flags, and those that it has in common with all.
std::vector<Flag> all_flags(const Subcommand& subcommand);

// The texts of --help; `program` is how the user calls the program, so that the examples work as printed.
std::string program_help(const std::string& program);
std::string subcommand_help(const Subcommand& subcommand, const std::string& program);

// What the arguments ask for.
struct Request {
  bool help = false;
  nlohmann::json json;  // "set": [[key, value], ...] when there is any, and a member for each other flag
};

// The subcommand of the name. Throws UsageError with the nearest.
const Subcommand& find_subcommand(const std::string& name);

// Throws UsageError for unknown flags (with the nearest), missing values, a flag given twice, too many or too few
// arguments, and a --set that is not KEY=VALUE.
Request parse_arguments(const Subcommand& subcommand, const std::vector<std::string>& arguments);

}  // namespace motet
