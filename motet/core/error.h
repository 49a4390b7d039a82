// The errors of Motet, and the one way its messages are put together.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace motet {

// A failure that one line explains. The program prints it and exits with `exit_code()`.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
  virtual int exit_code() const { return 1; }
};

// What was asked for cannot be: a wrong flag, key, value or combination. Exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return 2; }
};

// The user pressed Ctrl-C (exit code 130), or the process was asked to end (SIGHUP, 129; SIGTERM, 143; SIGUSR1, 138).
class Interrupted : public Error {
 public:
  using Error::Error;
  int exit_code() const override;  // core/interrupt knows the signal
};

// All parts behind each other, as operator<< prints them.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Throws Error with text(parts...).
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(text(parts...));
}

// Throws UsageError with text(parts...).
template <class... Parts>
[[noreturn]] void fail_usage(const Parts&... parts) {
  throw UsageError(text(parts...));
}

// `bytes` in single quotes, safe to print in one line: control characters and invalid UTF-8 appear as \xNN, and what
// is longer than 80 bytes is its two ends, 'head'...'tail'. For everything in a message that came from outside.
std::string quote(std::string_view bytes);

// The names of `known` joined by ", ".
std::string joined(const std::vector<std::string>& known);

// The entry of `known` with the fewest insertions, deletions, replacements and swaps of neighbours away from `name`
// (case ignored; the first of equals). Empty when none is near: one slip in three letters of the longer of the two, or
// in two where `name` is an abbreviation ("params" of "parameters"). A common section ("train.") does not count.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

// "unknown mechanism 'dcmah': nearest is 'dcmha'; known: coca, dcmha"; without "nearest ..." when nothing is near.
std::string unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& known);

}  // namespace motet
