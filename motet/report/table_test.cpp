#include "motet/report/table.h"

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;

Table example() {
  return {
      .columns = {{.name = "mechanism", .align = Align::left}, {.name = "loss", .unit = "nats", .key = "loss_nats"}},
      .rows = {{"mha", {"1.50 ± 0.01", 1.5}}, {"a|b,\"c\"", {"–", nullptr}}},
      .title = "Title",
      .note = "Note."};
}

TEST(Table, TextIsAlignedByCharacters) {
  EXPECT_EQ(render(example(), TableFormat::table),
            "Title\n"
            "\n"
            "mechanism  loss (nats)\n"
            "---------  -----------\n"
            "mha        1.50 ± 0.01\n"
            "a|b,\"c\"              –\n"
            "\n"
            "Note.\n");
}

TEST(Table, ColorIsInTheHeadingOnly) {
  const std::string out = render(example(), TableFormat::table, true);
  EXPECT_NE(out.find("\x1b[1mmechanism  loss (nats)\x1b[0m\n"), std::string::npos);
  EXPECT_EQ(render(example(), TableFormat::markdown, true).find('\x1b'), std::string::npos);
}

TEST(Table, MarkdownEscapesBars) {
  EXPECT_EQ(render(example(), TableFormat::markdown),
            "Title\n"
            "\n"
            "| mechanism | loss (nats) |\n"
            "|-----------|------------:|\n"
            "| mha       | 1.50 ± 0.01 |\n"
            "| a\\|b,\"c\"  |           – |\n"
            "\n"
            "Note.\n");
}

TEST(Table, CsvHasExactValuesAndQuotes) {
  EXPECT_EQ(render(example(), TableFormat::csv), "mechanism,loss_nats\nmha,1.5\n\"a|b,\"\"c\"\"\",\n");
}

TEST(Table, CsvHasNumbersThatJsonLacks) {
  const Table table = {.columns = {{.name = "a"}, {.name = "b"}, {.name = "c"}},
                       .rows = {{{"", HUGE_VAL}, {"", -HUGE_VAL}, {"", std::nan("")}}}};
  EXPECT_EQ(render(table, TableFormat::csv), "a,b,c\ninf,-inf,nan\n");
  EXPECT_EQ(render(table, TableFormat::jsonl), "{\"a\":null,\"b\":null,\"c\":null}\n");
}

TEST(Table, JsonIsAListAndJsonlALineEach) {
  EXPECT_EQ(
      render(example(), TableFormat::json),
      "[\n  {\"mechanism\":\"mha\",\"loss_nats\":1.5},\n  {\"mechanism\":\"a|b,\\\"c\\\"\",\"loss_nats\":null}\n]\n");
  EXPECT_EQ(render(example(), TableFormat::jsonl),
            "{\"mechanism\":\"mha\",\"loss_nats\":1.5}\n{\"mechanism\":\"a|b,\\\"c\\\"\",\"loss_nats\":null}\n");
}

TEST(Table, ATableWithoutRowsIsStillATable) {
  const Table empty = {.columns = {{.name = "a"}}, .rows = {}};
  EXPECT_EQ(render(empty, TableFormat::table), "a\n-\n");
  EXPECT_EQ(render(empty, TableFormat::csv), "a\n");
  EXPECT_EQ(render(empty, TableFormat::json), "[]\n");
  EXPECT_EQ(render(empty, TableFormat::jsonl), "");
}

TEST(Table, ARowOfAnotherLengthIsRefused) {
  const Table wrong = {.columns = {{.name = "a"}}, .rows = {{"1", "2"}}};
  EXPECT_EQ(message_of<Error>([&] { render(wrong, TableFormat::csv); }), "render: row 0 has 2 cells, want 1");
}

TEST(Table, FormatsHaveNames) {
  EXPECT_EQ(table_format("md"), TableFormat::markdown);
  EXPECT_EQ(table_format("jsonl"), TableFormat::jsonl);
  EXPECT_EQ(message_of<UsageError>([] { table_format("jsom"); }),
            "unknown output format 'jsom': nearest is 'json'; known: table, md, csv, json, jsonl");
}

TEST(Table, NumbersAreShort) {
  EXPECT_EQ(fixed(2.345, 2), "2.35");
  EXPECT_EQ(short_count(0), "0");
  EXPECT_EQ(short_count(950), "950");
  EXPECT_EQ(short_count(1234567), "1.23M");
  EXPECT_EQ(short_count(12345), "12.3k");
  EXPECT_EQ(short_count(999999), "1.00M");
  EXPECT_EQ(short_count(123.4), "123");
  EXPECT_EQ(short_count(-2500), "-2.50k");
  EXPECT_EQ(short_count(0.5), "0.50");
}

}  // namespace
}  // namespace motet
