#include "motet/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/progress.h"
#include "motet/ops/device.h"
#include "motet/verify/tokenizer_cases.h"

namespace motet {
namespace {

using nlohmann::json;

at::ScalarType scalar_type(VerifyRequest::Dtype dtype) {
  return dtype == VerifyRequest::Dtype::float64   ? at::kDouble
         : dtype == VerifyRequest::Dtype::float32 ? at::kFloat
                                                  : at::kBFloat16;
}

std::string scientific(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1e", number);
  return buffer;
}

// A file that was recomputed, or why it could not be.
struct FileRow {
  std::string path;
  FileReport report;
  std::string problem;

  bool passed() const { return problem.empty() && report.passed(); }
};

Cell error_cell(const Findings& findings) {
  const Deviation* worst = findings.worst();
  if (!worst) return {"-", nullptr};
  return {worst->error == 0 ? "0" : scientific(worst->error),
          {{"error", worst->error}, {"tensor", worst->tensor}, {"tolerance", worst->tolerance}}};
}

std::vector<Cell> cells(const FileRow& row) {
  const FileReport& r = row.report;
  std::vector<Cell> out{{std::filesystem::path(row.path).filename().string(), row.path},
                        r.program,
                        r.mechanism.empty() ? Cell("-", nullptr) : Cell(r.mechanism)};
  for (const Findings* group : r.groups()) out.push_back(error_cell(*group));
  json failing = json::array();
  for (const Deviation& f : r.failing())
    failing.push_back({{"tensor", f.tensor}, {"error", f.error}, {"tolerance", f.tolerance}});
  const Deviation* worst = r.worst();
  out.push_back(worst ? Cell(worst->tensor) : Cell("-", nullptr));
  out.push_back({failing.empty() ? "-" : std::to_string(failing.size()), failing});
  out.push_back(row.passed() ? "pass" : row.problem.empty() ? "fail" : "error");
  return out;
}

std::string summary(const std::vector<FileRow>& rows, const std::string& dtype, double tolerance) {
  const size_t passed =
      static_cast<size_t>(std::count_if(rows.begin(), rows.end(), [](const FileRow& r) { return r.passed(); }));
  std::string out = text(passed, " of ", rows.size(), rows.size() == 1 ? " file passes" : " files pass", " in ", dtype,
                         ", tolerance ", scientific(tolerance));
  const FileRow* largest = nullptr;
  for (const FileRow& row : rows)
    if (const Deviation* w = row.report.worst(); w && (!largest || w->error > largest->report.worst()->error))
      largest = &row;
  if (largest)
    out += text("; largest error ", scientific(largest->report.worst()->error), " (", largest->report.worst()->tensor,
                " of ", std::filesystem::path(largest->path).filename().string(), ")");
  for (const FileRow& row : rows) {
    for (const Deviation& f : row.report.loosened(tolerance))
      out += text("\n", row.path, ": ", f.tensor, " may differ by ", scientific(f.tolerance), ", says the file");
    for (const Deviation& f : row.report.failing())
      out += text("\n", row.path, ": ", f.tensor, " differs by ", scientific(f.error));
  }
  return out;
}

Table table_of(const std::vector<FileRow>& rows, std::string note) {
  Table table{.columns = {{"file", Align::left}, {"program", Align::left}, {"mechanism", Align::left}},
              .note = std::move(note)};
  for (const char* group : {"outputs", "mids", "variants", "gradients", "masks"}) table.columns.push_back({group});
  table.columns.push_back({"worst tensor", Align::left, "", "worst"});
  table.columns.push_back({"failing"});
  table.columns.push_back({"result", Align::left});
  for (const FileRow& row : rows) table.rows.push_back(cells(row));
  if (std::all_of(rows.begin(), rows.end(), [](const FileRow& row) { return row.problem.empty(); })) return table;
  table.columns.push_back({"problem", Align::left});
  for (size_t i = 0; i < rows.size(); ++i)
    table.rows[i].push_back({rows[i].problem, rows[i].problem.empty() ? json() : json(rows[i].problem)});
  return table;
}

std::string problem_lines(const std::vector<TokenizerReport>& reports) {
  std::string out;
  for (const TokenizerReport& report : reports)
    if (!report.passed()) out += (out.empty() ? "" : "\n") + report.file + ": " + report.first_wrong;
  return out;
}

int run_tokenizer_cases(const json& request) {
  const auto paths = request.at("paths").get<std::vector<std::string>>();
  refuse_flags(request, "--tokenizers", {"dtype", "device", "tolerance"});
  if (paths.size() != 1) fail_usage("--tokenizers: goes with one folder, here are ", paths.size());
  output_format(request);
  const auto reports = verify_tokenizers(paths[0], request["tokenizers"]);
  Table table{.columns = {{"tokenizer", Align::left},
                          {"file", Align::left},
                          {"cases"},
                          {"wrong ids"},
                          {"wrong offsets"},
                          {"wrong text"},
                          {"result", Align::left}},
              .note = problem_lines(reports)};
  bool all = true;
  for (const TokenizerReport& r : reports) {
    const auto number = [](int64_t n) { return Cell(std::to_string(n), n); };
    table.rows.push_back({r.name, r.file, number(r.cases), number(r.wrong_ids), number(r.wrong_offsets),
                          number(r.wrong_text), r.passed() ? "pass" : "fail"});
    all = all && r.passed();
  }
  print_table(table, request);
  return all ? 0 : 1;
}

}  // namespace

int run_verify(const json& request) {
  if (request.contains("tokenizers")) return run_tokenizer_cases(request);
  const VerifyRequest asked = read_request(verify_options(), request);
  VerifyOptions options{.dtype = scalar_type(asked.dtype), .device = parse_device(asked.device)};
  options.tolerance = asked.tolerance < 0 ? default_tolerance(options.dtype) : asked.tolerance;
  output_format(request);  // a wrong name is refused before the work
  const std::vector<std::string> paths = golden_files(request.at("paths").get<std::vector<std::string>>());
  if (request.contains("threads")) {
    request_threads(request);
  } else {
    at::set_num_threads(1);  // recorded files are small: threads that wait for each other cost more than they bring
  }

  Progress progress("verify", static_cast<int64_t>(paths.size()));
  std::vector<FileRow> rows;
  for (const std::string& path : paths) {
    check_interrupt();
    rows.push_back({.path = path});
    try {
      rows.back().report = verify_file(path, options);
    } catch (const Interrupted&) {
      throw;
    } catch (const Error& error) {
      if (paths.size() == 1) throw;
      rows.back().problem = error.what();
    }
    progress.update(static_cast<int64_t>(rows.size()), path);
  }
  progress.finish();
  print_table(table_of(rows, summary(rows, verify_options().write(asked).at("dtype"), options.tolerance)), request);
  return std::all_of(rows.begin(), rows.end(), [](const FileRow& row) { return row.passed(); }) ? 0 : 1;
}

}  // namespace motet
