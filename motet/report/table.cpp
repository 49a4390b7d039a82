#include "motet/report/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "motet/core/error.h"
#include "motet/core/utf8.h"

namespace motet {
namespace {

using ordered_json = nlohmann::ordered_json;

std::string heading(const Column& column) {
  return column.unit.empty() ? column.name : column.name + " (" + column.unit + ")";
}

std::string key_of(const Column& column) { return column.key.empty() ? column.name : column.key; }

std::string padded(const std::string& cell, size_t width, Align align) {
  const std::string space(width - std::min(width, utf8_length(cell)), ' ');
  return align == Align::left ? cell + space : space + cell;
}

// Cells with the heading as row 0; `escape` changes each cell.
template <class Escape>
std::vector<std::vector<std::string>> lines_of(const Table& table, Escape escape) {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : table.columns) lines[0].push_back(escape(heading(column)));
  for (const auto& row : table.rows) {
    lines.emplace_back();
    for (const Cell& cell : row) lines.back().push_back(escape(cell.shown));
  }
  return lines;
}

std::vector<size_t> widths_of(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths(lines[0].size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], utf8_length(line[i]));
  }
  return widths;
}

std::string render_table(const Table& table, bool color) {
  const auto lines = lines_of(table, [](const std::string& cell) { return cell; });
  const auto widths = widths_of(lines);
  std::string out = table.title.empty() ? "" : table.title + "\n\n";
  for (size_t row = 0; row < lines.size(); ++row) {
    std::string line;
    for (size_t i = 0; i < lines[row].size(); ++i) {
      line += (i ? "  " : "") + padded(lines[row][i], widths[i], table.columns[i].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += (color && row == 0 ? "\x1b[1m" + line + "\x1b[0m" : line) + "\n";
    if (row > 0) continue;
    for (size_t i = 0; i < widths.size(); ++i) out += (i ? "  " : "") + std::string(widths[i], '-');
    out += "\n";
  }
  return table.note.empty() ? out : out + "\n" + table.note + "\n";
}

std::string render_markdown(const Table& table) {
  const auto lines = lines_of(table, [](const std::string& cell) {
    std::string out;
    for (const char character : cell)
      out += character == '|' ? "\\|" : character == '\n' ? "<br>" : std::string(1, character);
    return out;
  });
  const auto widths = widths_of(lines);
  std::string out = table.title.empty() ? "" : table.title + "\n\n";
  for (size_t row = 0; row < lines.size(); ++row) {
    for (size_t i = 0; i < widths.size(); ++i) {
      out += "| " + padded(lines[row][i], widths[i], table.columns[i].align) + " ";
    }
    out += "|\n";
    if (row > 0) continue;
    for (size_t i = 0; i < widths.size(); ++i) {
      const bool right = table.columns[i].align == Align::right;
      out += "|" + std::string(widths[i] + (right ? 1 : 2), '-') + (right ? ":" : "");
    }
    out += "|\n";
  }
  return table.note.empty() ? out : out + "\n" + table.note + "\n";
}

std::string csv_field(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string out = "\"";
  for (const char character : field) out += character == '"' ? "\"\"" : std::string(1, character);
  return out + "\"";
}

// Text as JSON has it, so that the file is UTF-8; numbers that JSON has not as inf, -inf and nan.
std::string csv_value(const nlohmann::json& value) {
  std::string storage;
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const auto number = value.get<double>();
    return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  }
  if (value.is_string()) return std::string(valid_utf8(value.get_ref<const std::string&>(), storage));
  return value.is_null() ? "" : value.dump();
}

std::string render_csv(const Table& table) {
  std::string out;
  for (size_t i = 0; i < table.columns.size(); ++i) out += (i ? "," : "") + csv_field(key_of(table.columns[i]));
  out += "\n";
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) out += (i ? "," : "") + csv_field(csv_value(row[i].value));
    out += "\n";
  }
  return out;
}

std::string render_json(const Table& table, bool lines) {
  std::string out;
  for (const auto& row : table.rows) {
    ordered_json object = ordered_json::object();
    for (size_t i = 0; i < row.size(); ++i) object[key_of(table.columns[i])] = row[i].value;
    const std::string line = object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    out += lines ? line + "\n" : (out.empty() ? "\n  " : ",\n  ") + line;
  }
  if (lines) return out;
  return out.empty() ? "[]\n" : "[" + out + "\n]\n";
}

}  // namespace

TableFormat table_format(const std::string& name) {
  const std::vector<std::string> names = {"table", "md", "csv", "json", "jsonl"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<TableFormat>(i);
  }
  throw UsageError(unknown_name("output format", name, names));
}

std::string render(const Table& table, TableFormat format, bool color) {
  for (size_t i = 0; i < table.rows.size(); ++i) {
    if (table.rows[i].size() == table.columns.size()) continue;
    fail("render: row ", i, " has ", table.rows[i].size(), " cells, want ", table.columns.size());
  }
  switch (format) {
    case TableFormat::table:
      return render_table(table, color);
    case TableFormat::markdown:
      return render_markdown(table);
    case TableFormat::csv:
      return render_csv(table);
    case TableFormat::json:
      return render_json(table, false);
    case TableFormat::jsonl:
      break;
  }
  return render_json(table, true);
}

std::string fixed(double number, int digits) {
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, number);
  return buffer;
}

std::string short_count(double number) {
  const char* suffixes[] = {"", "k", "M", "G", "T", "P"};
  size_t suffix = 0;
  while (suffix + 1 < std::size(suffixes) && std::fabs(number) >= 999.5) {
    number /= 1000;
    ++suffix;
  }
  char buffer[400];
  const bool whole = suffix == 0 && number == std::floor(number);
  const int digits = whole || std::fabs(number) >= 99.95 ? 0 : std::fabs(number) >= 9.995 ? 1 : 2;
  std::snprintf(buffer, sizeof buffer, "%.*f%s", digits, number, suffixes[suffix]);
  return buffer;
}

}  // namespace motet
