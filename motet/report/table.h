// A table of results in the formats of -o/--output.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace motet {

enum class Align { left, right };
enum class TableFormat { table, markdown, csv, json, jsonl };

struct Column {
  std::string name;  // the heading
  Align align = Align::right;
  std::string unit = {};  // stands in brackets behind the name; empty: none
  std::string key = {};   // the name in csv, json and jsonl; empty: `name`
};

// What people read and what programs read.
struct Cell {
  std::string shown;
  nlohmann::json value;

  Cell(const char* text) : shown(text), value(text) {}
  Cell(std::string text) : shown(text), value(std::move(text)) {}
  Cell(std::string text, nlohmann::json exact) : shown(std::move(text)), value(std::move(exact)) {}
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
  std::string title = {};  // above the table, of `table` and `markdown` only
  std::string note = {};   // below it, likewise
};

// "table", "md", "csv", "json", "jsonl". Throws UsageError with the nearest name.
TableFormat table_format(const std::string& name);

// Ends in a line break. json: a list of objects; jsonl: an object a line; csv: RFC 4180 with LF. `color` sets the
// heading of `table` in bold. Throws Error when a row has another number of cells than there are columns.
std::string render(const Table& table, TableFormat format, bool color = false);

// A number in few characters: `digits` behind the point ("2.31"), or with a suffix: 1234567 -> "1.23M", 950 -> "950".
std::string fixed(double number, int digits);
std::string short_count(double number);

}  // namespace motet
