#include "motet/bench/processes_bench.h"
#include "motet/bench/shape.h"
#include "motet/commands/bench_table.h"
#include "motet/commands/request.h"
#include "motet/commands/together.h"
#include "motet/core/error.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

TrainBench read_bench(const nlohmann::json& request, const Place& place) {
  const BenchRequest asked = read_request(bench_options(), request);
  const TrainBench bench{.shape = read_shape(asked.shape, train_shape_options()),
                         .threads = request_threads(request),
                         .device = parse_device(device_of(asked.device, place)),
                         .turns = {.warmups = 2, .repeats = repeats_of(asked, 7)}};
  output_format(request);  // refused before anything runs
  if (place.size < 2) fail_usage("bench processes: one process has nobody to share with, want --processes 2 or more");
  return bench;
}

}  // namespace

int bench_processes(const nlohmann::json& request) {
  const Place place = this_place();
  const TrainBench bench = read_by_each(place, [&] { return read_bench(request, place); });
  const auto processes = std::make_shared<Processes>(place, bench.device, Patience{});
  return together(*processes, [&] {
    const ProcessesTimes times = measure_processes(bench, processes);
    if (!processes->first()) return 0;
    Table table{.columns = {{"way", Align::left},
                            {"parameters"},
                            {"processes"},
                            {"step", Align::right, "ms", "wall_ms"},
                            {"CPU of all", Align::right, "ms", "cpu_ms"},
                            {"tokens/s", Align::right, "", "tokens_per_second"},
                            {"exchanged", Align::right, "MB", "exchanged_bytes"},
                            {"state", Align::right, "MB", "state_bytes"},
                            {"ratio", Align::right, "", "ratio"}}};
    const auto megabytes = [](int64_t bytes) { return Cell{fixed(static_cast<double>(bytes) * 1e-6, 1), bytes}; };
    for (const ProcessesTime& way : times.ways) {
      const double rate = static_cast<double>(times.tokens) / way.step.wall;
      table.rows.push_back({way.name,
                            {short_count(static_cast<double>(times.parameters)), times.parameters},
                            count(way.processes),
                            milliseconds(way.step.wall),
                            milliseconds(way.step.cpu),
                            {fixed(rate, 0), rate},
                            megabytes(way.exchanged_bytes),
                            megabytes(way.state_bytes),
                            ratio(times.ways[0].step.wall / way.step.wall)});
    }
    if (for_people(request))
      table.note = text("One training step of ", times.tokens, " tokens, float32, the same rows whoever makes it; all ",
                        "ways took turns step by step, and their\nfirst losses were compared. Threads are of a ",
                        "process. Exchanged: what each process sends, and receives, a step. Ratio: of tokens/s.\n");
    add_setup(table, {.threads = bench.threads, .repeats = bench.turns.repeats, .device = bench.device}, request);
    print_table(table, request);
    return 0;
  });
}

}  // namespace motet
