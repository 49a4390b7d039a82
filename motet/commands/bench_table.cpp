#include "motet/commands/bench_table.h"

#include <algorithm>

#include "motet/bench/machine.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/process.h"
#include "motet/core/version.h"

namespace motet {

bool for_people(const nlohmann::json& request) {
  const TableFormat format = output_format(request);
  return format == TableFormat::table || format == TableFormat::markdown;
}

void add_setup(Table& table, const Setup& setup, const nlohmann::json& request) {
  const std::pair<const char*, Cell> facts[] = {{"repeats", {std::to_string(setup.repeats), setup.repeats}},
                                                {"threads", {std::to_string(setup.threads), setup.threads}},
                                                {"device", setup.device.str()},
                                                {"gpu", setup.device.is_cuda() ? Cell{gpu_name()} : Cell{"", nullptr}},
                                                {"processor", processor_name()},
                                                {"motet", kVersion},
                                                {"torch", torch_version()},
                                                {"command", request.value("command", "")}};
  if (for_people(request)) {
    table.note +=
        text(setup.statistic, " of ", setup.repeats, "; ", setup.device.is_cpu() ? "" : setup.device.str() + " and ",
             setup.threads, setup.threads == 1 ? " thread" : " threads", " of ", processor_name(), "; motet ", kVersion,
             ", torch ", torch_version(), ".");
    return;
  }
  for (const auto& [name, cell] : facts) {
    table.columns.push_back({name});
    for (auto& row : table.rows) row.push_back(cell);
  }
}

int64_t repeats_of(const BenchRequest& asked, int64_t fewest, int64_t otherwise) {
  if (asked.repeats > 0 && asked.repeats < fewest) fail_usage("--repeats: ", asked.repeats, " is below ", fewest);
  return asked.repeats > 0 ? asked.repeats : otherwise;
}

int64_t two_threads(const nlohmann::json& request) {
  nlohmann::json with_threads = request;
  if (!request.contains("threads")) with_threads["threads"] = std::min(2, processor_count());
  return request_threads(with_threads);
}

Cell milliseconds(double seconds) { return {fixed(1e3 * seconds, 2), 1e3 * seconds}; }
Cell ratio(double x) { return {fixed(x, 2), x}; }
Cell count(int64_t n) { return {std::to_string(n), n}; }

}  // namespace motet
