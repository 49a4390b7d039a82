#include "apps/motet/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "motet/core/error.h"

namespace motet {
namespace {

using nlohmann::json;

std::string spelling(const Flag& flag) {
  return flag.short_name.empty() ? "--" + flag.long_name : "-" + flag.short_name + ",--" + flag.long_name;
}

[[noreturn]] void fail_arguments(const Subcommand& subcommand, const std::string& message) {
  fail_usage(subcommand.name, ": ", message, "; see motet ", subcommand.name, " --help");
}

[[noreturn]] void fail_unknown_flag(const Subcommand& subcommand, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> known;
  for (const Flag& flag : all_flags(subcommand)) known.push_back(flag.long_name);
  const std::string nearest = nearest_name(name.substr(name.find_first_not_of('-')), known);
  fail_arguments(subcommand, "unknown flag " + quote(name) + (nearest.empty() ? "" : ": nearest is --" + nearest));
}

// What CLI11 left over: everything without dashes, and flags it does not know.
std::vector<std::string> positionals(const Subcommand& subcommand, const std::vector<std::string>& rest) {
  std::vector<std::string> values;
  bool flags_may_come = true;
  for (const std::string& argument : rest) {
    if (flags_may_come && argument == "--") {
      flags_may_come = false;
    } else if (flags_may_come && argument.size() > 1 && argument[0] == '-') {
      fail_unknown_flag(subcommand, argument);
    } else {
      values.push_back(argument);
    }
  }
  const Positional& positional = subcommand.positional;
  if (values.size() > positional.most) {
    fail_arguments(subcommand, "unexpected argument " + quote(values[positional.most]));
  }
  if (values.size() < positional.least) fail_arguments(subcommand, positional.name + " is missing");
  return values;
}

// A configuration key goes to "set", anything else is a field of its own.
void store(json& request, const Flag& flag, const std::vector<std::string>& values, const Subcommand& subcommand) {
  if (flag.kind == FlagKind::text && values.size() > 1) {
    fail_arguments(subcommand, "--" + flag.long_name + " is given twice");
  }
  if (flag.target.find('.') != std::string::npos) {
    request["set"].push_back({flag.target, values.front()});
  } else if (flag.kind == FlagKind::list) {
    request[flag.target] = values;
  } else {
    request[flag.target] = values.front();
  }
}

// "KEY=VALUE" -> [KEY, VALUE].
json override_of(const Subcommand& subcommand, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    fail_arguments(subcommand, "--set " + quote(text) + " is no override, want KEY=VALUE");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// "--flag=" as "--flag" and an empty value: CLI11 would take the next argument for the value.
std::vector<std::string> with_empty_values(const std::vector<std::string>& arguments) {
  std::vector<std::string> all;
  for (const std::string& argument : arguments) {
    const bool empty = argument.starts_with("--") && argument.size() > 3 && argument.find('=') == argument.size() - 1;
    all.push_back(empty ? argument.substr(0, argument.size() - 1) : argument);
    if (empty) all.emplace_back();
  }
  return all;
}

// Runs CLI11, whose errors have several lines and other exit codes. The one that is left to it is a missing value.
void parse(CLI::App& app, const Subcommand& subcommand, std::vector<std::string> arguments) {
  arguments = with_empty_values(arguments);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes its vector from the end
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string message = error.what();
    fail_arguments(subcommand, message.substr(0, message.find(':')) + " wants a value");
  } catch (const CLI::ParseError& error) {
    fail_arguments(subcommand, quote(error.what()));
  }
}

// Tells CLI11 about a flag.
CLI::Option* declare(CLI::App& app, const Flag& flag) {
  if (flag.kind == FlagKind::toggle) {
    return app.add_flag(spelling(flag))->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  CLI::Option* option = app.add_option(spelling(flag), [](const CLI::results_t&) { return true; });
  return option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->expected(1);
}

}  // namespace

const Subcommand& find_subcommand(const std::string& name) {
  std::vector<std::string> known;
  for (const Subcommand& subcommand : subcommands()) {
    if (subcommand.name == name) return subcommand;
    known.push_back(subcommand.name);
  }
  throw UsageError(unknown_name("subcommand", name, known));
}

Request parse_arguments(const Subcommand& subcommand, const std::vector<std::string>& arguments) {
  CLI::App app;
  app.allow_extras();
  app.set_help_flag();
  Request request{.help = false, .json = json::object()};
  app.add_flag("-h,--help", request.help);
  const std::vector<Flag> flags = all_flags(subcommand);
  std::vector<std::pair<const Flag*, CLI::Option*>> options;
  for (const Flag& flag : flags) options.emplace_back(&flag, declare(app, flag));
  parse(app, subcommand, arguments);
  if (request.help) return request;

  json overrides = json::array();
  for (const auto& [flag, option] : options) {
    if (option->count() == 0) continue;
    if (flag->kind == FlagKind::toggle) {
      if (option->results().front() != "true") fail_arguments(subcommand, "--" + flag->long_name + " takes no value");
      request.json[flag->target] = true;
    } else if (flag->target == "set") {
      for (const std::string& text : option->results()) overrides.push_back(override_of(subcommand, text));
    } else {
      store(request.json, *flag, option->results(), subcommand);
    }
  }
  // --set comes last, so that it wins over the short forms.
  for (const json& pair : overrides) request.json["set"].push_back(pair);
  const std::vector<std::string> values = positionals(subcommand, app.remaining());
  const Positional& positional = subcommand.positional;
  if (positional.most == 1 && !values.empty()) request.json[positional.field] = values.front();
  if (positional.most > 1) request.json[positional.field] = values;
  return request;
}

}  // namespace motet
