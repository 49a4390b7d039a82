#include <algorithm>

#include "apps/motet/cli.h"

namespace motet {
namespace {

// "  left side   right side" lines with the right sides below each other.
std::string two_columns(const std::vector<std::pair<std::string, std::string>>& lines) {
  size_t width = 0;
  for (const auto& [left, right] : lines) width = std::max(width, left.size());
  std::string out;
  for (const auto& [left, right] : lines) out += "  " + left + std::string(width - left.size() + 2, ' ') + right + "\n";
  return out;
}

std::string left_side(const Flag& flag) {
  const std::string dash = flag.short_name.empty() ? "    " : "-" + flag.short_name + ", ";
  return dash + "--" + flag.long_name + (flag.value.empty() ? "" : " " + flag.value);
}

std::string usage_of(const Positional& positional) {
  if (positional.most == 0) return "";
  const std::string name = positional.name + (positional.most > 1 ? "..." : "");
  return positional.least == 0 ? " [" + name + "]" : " " + name;
}

}  // namespace

std::string program_help(const std::string& program) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Subcommand& subcommand : subcommands()) lines.emplace_back(subcommand.name, subcommand.summary);
  return "Motet trains, compares and runs Transformers whose attention goes beyond multi-head attention.\n\nUsage: " +
         program + " SUBCOMMAND [FLAGS]\n\nSubcommands:\n" + two_columns(lines) + "\nFlags:\n" +
         two_columns({{"-h, --help", "this text; after a subcommand, its own"}, {"-v, --version", "the version"}}) +
         "\nExamples:\n  " + program + " " + subcommands().front().examples.front() + "\n  " + program + " doctor\n";
}

std::string subcommand_help(const Subcommand& subcommand, const std::string& program) {
  std::string out = subcommand.summary + "\n\nUsage: " + program + " " + subcommand.name + " [FLAGS]" +
                    usage_of(subcommand.positional) + "\n\n";
  if (subcommand.positional.most > 0) {
    out += "Arguments:\n" + two_columns({{subcommand.positional.name, subcommand.positional.help}}) + "\n";
  }
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Flag& flag : all_flags(subcommand)) lines.emplace_back(left_side(flag), flag.help);
  lines.emplace_back("-h, --help", "this text");
  out += "Flags:\n" + two_columns(lines) + "\nExamples:\n";
  for (const std::string& example : subcommand.examples) out += "  " + program + " " + example + "\n";
  return out;
}

}  // namespace motet
