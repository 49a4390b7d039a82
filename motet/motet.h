#pragma once

extern "C" {

/// Runs one subcommand of the engine ("compare", "train", ...). `request_json` holds the values that the command line
/// gave, as apps/motet lays them out. Results go to stdout, progress and errors (one line) to stderr.
/// Returns the exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted. Never throws.
int motet_run(const char* subcommand, const char* request_json);
}
