#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/core/options.h"
#include "motet/core/process.h"
#include "motet/core/progress.h"
#include "motet/core/utf8.h"
#include "motet/data/corpus.h"
#include "motet/formats/json.h"
#include "motet/report/table.h"
#include "motet/text/bpe/bpe_trainer.h"
#include "motet/text/chat/template.h"
#include "motet/text/readers/load.h"

namespace motet {
namespace {

using nlohmann::json;
using Visit = std::function<void(std::string_view)>;

// Reads a file, or standard input for "-", part by part.
void read_parts(const std::string& path, const Visit& visit) {
  std::ifstream file;
  if (path != "-") {
    if (std::filesystem::is_directory(path)) fail("cannot read ", quote(path), ": it is a folder, want a file");
    file.open(path, std::ios::binary);
    if (!file) fail("cannot read ", quote(path), ": ", std::generic_category().message(errno));
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::vector<char> part(1 << 20);
  while (in.read(part.data(), static_cast<std::streamsize>(part.size())), in.gcount() > 0) {
    check_interrupt();
    visit({part.data(), static_cast<size_t>(in.gcount())});
  }
  check_interrupt();  // an interrupted read looks like the end
  if (in.bad()) fail("cannot read ", quote(path), ": ", std::generic_category().message(errno));
}

std::string read_all(const std::string& path) {
  if (path != "-") return read_file(path);
  std::string out;
  read_parts(path, [&](std::string_view part) {
    out += part;
    if (out.size() > kStreamBytes) fail("standard input: more than ", kStreamBytes, " bytes, want at most that many");
  });
  return out;
}

// A field that is a string or a list of them.
std::vector<std::string> paths_of(const json& request) { return request.value("texts", std::vector<std::string>()); }

json description(const Tokenizer& tokenizer, std::string_view text, const std::vector<TextToken>& tokens) {
  json ids = json::array(), offsets = json::array(), pieces = json::array();
  for (const TextToken& token : tokens) {
    ids.push_back(token.id);
    offsets.push_back({token.span.begin, token.span.end});
    pieces.push_back(tokenizer.piece(token.id));
  }
  return {{"tokens", tokens.size()}, {"bytes", text.size()}, {"ids", ids}, {"offsets", offsets}, {"pieces", pieces}};
}

std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// The pieces on backgrounds of turning colours, line breaks shown and kept.
void print_colored(const Tokenizer& tokenizer, const std::vector<TextToken>& tokens) {
  static const int kColors[] = {153, 223, 157, 225, 230};
  size_t color = 0;
  std::string out;
  for (const TextToken& token : tokens) {
    char begin[32];
    std::snprintf(begin, sizeof begin, "\x1b[30;48;5;%dm", kColors[color++ % std::size(kColors)]);
    const std::string piece = tokenizer.text({&token.id, 1}, false);
    out += begin;
    for (const char c : piece.empty() ? tokenizer.piece(token.id) : piece) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '\n') {
        out += "\xE2\x86\xB5\x1b[0m\n";  // an arrow, and the colour again in the next line
        out += begin;
      } else if (byte < 0x20 || byte == 0x7F) {
        out += '.';
      } else {
        out += c;
      }
    }
    out += "\x1b[0m";
  }
  std::cout << out << "\n";
}

std::string summary(std::string_view text, size_t tokens) {
  const double ratio = tokens == 0 ? 0 : static_cast<double>(text.size()) / static_cast<double>(tokens);
  return motet::text(tokens, tokens == 1 ? " token, " : " tokens, ", text.size(), " bytes, ", utf8_length(text),
                     " characters, ", fixed(ratio, 2), " bytes a token");
}

// An object for each text: in a list where json has several, else a line each.
void print_records(const Tokenizer& tokenizer, const std::vector<std::string>& texts, const EncodeOptions& options,
                   const json& request) {
  const bool list = output_format(request) == TableFormat::json && texts.size() > 1;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<TextToken> tokens = tokenizer.tokens(texts[i], options);
    const json record = request.value("count", false) ? json{{"tokens", tokens.size()}, {"bytes", texts[i].size()}}
                                                      : description(tokenizer, texts[i], tokens);
    std::cout << (!list ? "" : i == 0 ? "[\n  " : ",\n  ") << dumped(record) << (list ? "" : "\n");
  }
  if (list) std::cout << "\n]\n";
}

void print_tokens(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options,
                  const json& request) {
  const TableFormat format = output_format(request);
  const std::vector<TextToken> tokens = tokenizer.tokens(text, options);
  if (request.value("count", false)) {
    if (format == TableFormat::table)
      std::cout << tokens.size() << "\n";
    else
      std::cout << render(
          {.columns = {{"tokens"}, {"bytes"}}, .rows = {{std::to_string(tokens.size()), std::to_string(text.size())}}},
          format, false);
  } else if (format == TableFormat::table && request.value("color", false)) {
    print_colored(tokenizer, tokens);
    std::cout << summary(text, tokens.size()) << "\n";
  } else {
    Table table{.columns = {{"id"}, {"begin"}, {"end"}, {"piece", Align::left}}, .note = summary(text, tokens.size())};
    for (const TextToken& token : tokens) {
      const std::string piece = tokenizer.piece(token.id);
      table.rows.push_back({{std::to_string(token.id), token.id},
                            {std::to_string(token.span.begin), token.span.begin},
                            {std::to_string(token.span.end), token.span.end},
                            {quote(piece), piece}});
    }
    std::cout << render(table, format, false);
  }
}

// Each line of the input is a text as a JSON string; each line of the output describes one.
void print_lines(const Tokenizer& tokenizer, const EncodeOptions& options) {
  std::string line;
  for (size_t number = 1; read_line(std::cin, line, "standard input"); ++number) {
    const std::string where = text("standard input:", number);
    const json value = parse_json(line, where);
    if (!value.is_string()) fail(where, ": is ", quote(line), ", want a text as a JSON string");
    const auto& text = value.get_ref<const std::string&>();
    const std::string_view view = text;
    const auto ids = tokenizer.encode_all(std::span(&view, 1), 1, options)[0];
    json out = description(tokenizer, text, tokenizer.tokens(text, options));
    if (out["ids"] != json(ids)) fail(where, ": ids with and without offsets differ, please report this text");
    out["decoded"] = tokenizer.text(ids, false);
    std::cout << dumped(out) << "\n";
  }
}

// Each line of the input is an object of a chat template's variables; each line of the output is its text as JSON.
void print_chats(const std::string& path) {
  const ChatTemplate chat(read_file(path), path);
  std::string line;
  for (size_t number = 1; read_line(std::cin, line, "standard input"); ++number) {
    parse_json(line, text("standard input:", number));  // limits and messages; the next one keeps the members' order
    std::cout << dumped(chat.render(nlohmann::ordered_json::parse(line))) << "\n";
  }
}

void print_decoded(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  size_t at = 0;
  while ((at = text.find_first_not_of(" \t\r\n,[]", at)) != text.npos) {
    const size_t end = std::min(text.find_first_of(" \t\r\n,[]", at), text.size());
    const std::string number = text.substr(at, end - at);
    char* rest = nullptr;
    errno = 0;
    const long long id = std::strtoll(number.c_str(), &rest, 10);
    if (*rest != 0 || errno != 0 || id < 0 || id > INT32_MAX) fail("tokenize: ", quote(number), " is no token id");
    ids.push_back(static_cast<int32_t>(id));
    at = end;
  }
  std::cout << tokenizer.text(ids, false);
}

// The lines of the text as texts of their own, encoded again and again; the best time counts.
void print_speed(const Tokenizer& tokenizer, const std::string& text, const EncodeOptions& options,
                 const json& request) {
  const Option option{.name = "repeats", .type = OptionType::integer, .default_value = 3, .min = 1, .max = 1000};
  const auto repeats = checked(option, request["repeats"], "--repeats").get<int64_t>();
  const int threads = request.contains("threads") ? request["threads"].get<int>() : processor_count();
  std::vector<std::string_view> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    lines.push_back(std::string_view(text).substr(begin, end - begin));
    begin = end;
  }
  double best = 0;
  size_t tokens = 0;
  for (int64_t i = 0; i < repeats; ++i) {
    check_interrupt();
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer.encode_all(lines, threads, options);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i == 0 || seconds < best) best = seconds;
    tokens = 0;
    for (const auto& line : ids) tokens += line.size();
  }
  const double speed = static_cast<double>(text.size()) / 1e6 / best;
  std::cout << render(
      {.columns = {{"texts"}, {"tokens"}, {"threads"}, {"seconds"}, {"MB/s", Align::right, "", "mb_per_second"}},
       .rows = {{{std::to_string(lines.size()), lines.size()},
                 {std::to_string(tokens), tokens},
                 {std::to_string(threads), threads},
                 {fixed(best, 3), best},
                 {fixed(speed, 1), speed}}}},
      output_format(request), request.value("color", false));
}

int train(const json& request) {
  const Option size{
      .name = "vocab_size", .type = OptionType::integer, .default_value = nullptr, .min = 257, .max = 1 << 24};
  if (!request.contains("vocab_size")) fail_usage("--vocab-size: is missing, want the number of tokens");
  const auto wanted = checked(size, request["vocab_size"], "--vocab-size").get<int64_t>();
  for (const char* name : {"prompt", "model"})
    if (request.contains(name)) fail_usage("--", name, ": has no meaning with --train, want files or standard input");
  refuse_flags(request, "--train", {"count", "decode", "lines", "add_special", "plain", "repeats", "chat_template"});
  const std::string out = request.value("out", "tokenizer.json");
  if (std::filesystem::exists(out))
    fail_usage(request.contains("out") ? "--out: " : "", out, " exists, want --out with a new file");
  std::vector<std::string> paths = paths_of(request);
  if (paths.empty()) paths = {"-"};
  for (const std::string& path : paths)
    if (const std::string other = other_than_text(path); !other.empty())
      fail("cannot use ", quote(path), ": ", other, ", want plain text");
  BpeTrainer trainer;
  int64_t done = 0;
  Progress reading("read", 0);
  for (const std::string& path : paths) {
    read_parts(path, [&](std::string_view part) {
      if (const size_t zero = part.find('\0'); zero != part.npos)
        fail("cannot use ", quote(path), ": a zero byte at offset ", static_cast<size_t>(done) + zero,
             ", want text and not binary data");
      trainer.add(part);
      reading.update(done += static_cast<int64_t>(part.size()));
    });
    trainer.add("\n");
  }
  reading.finish();
  if (done == 0) fail("tokenize: the text is empty, want text to learn from");
  Progress merging("merge", wanted - 257);
  const auto tokenizer = trainer.finish(wanted, [&](int64_t merges) {
    check_interrupt();
    merging.update(merges);
  });
  merging.finish();
  const auto folder = std::filesystem::path(out).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) fail("cannot write ", quote(out), ": ", error.message());
  write_file_atomic(out, tokenizer->to_json().dump() + "\n");
  const TableFormat format = output_format(request);
  std::cout << render({.columns = {{"tokenizer", Align::left}, {"tokens"}, {"text bytes"}},
                       .rows = {{out,
                                 {std::to_string(tokenizer->vocabulary_size()), tokenizer->vocabulary_size()},
                                 {short_count(static_cast<double>(done)), done}}}},
                      format, request.value("color", false));
  return 0;
}

// What a mode that reads lines of standard input and writes lines of JSON would ignore.
void refuse_beside_input(const json& request, const std::string& what, std::initializer_list<const char*> flags) {
  refuse_flags(request, what, flags);
  if (const TableFormat format = output_format(request);
      request.contains("output") && format != TableFormat::json && format != TableFormat::jsonl)
    refuse_flags(request, what + ", which writes lines of JSON", {"output"});
  if (const std::vector<std::string> paths = paths_of(request); !paths.empty())
    fail_usage(quote(paths[0]), ": has no meaning for ", what, ", which reads standard input");
}

}  // namespace

int run_tokenize(const json& request) {
  output_format(request);  // a wrong name is refused before the work
  if (request.value("train", false)) return train(request);
  for (const char* name : {"vocab_size", "out"}) {
    if (request.contains(name))
      fail_usage("--", name == std::string("out") ? name : "vocab-size", ": goes with --train only");
  }
  if (request.contains("prompt") && !paths_of(request).empty())
    fail_usage("--prompt: stands beside FILE, want one of them");
  if (request.value("decode", false)) refuse_flags(request, "--decode", {"add_special", "plain", "repeats"});
  if (request.contains("repeats")) refuse_flags(request, "--repeats", {"count"});
  if (request.value("decode", false) && (request.value("count", false) || request.value("output", "table") != "table"))
    fail_usage("--decode: gives the text alone, want it without --count and --output");
  if (request.contains("chat_template")) {
    refuse_beside_input(request, "--chat-template",
                        {"model", "prompt", "lines", "decode", "count", "repeats", "add_special", "plain"});
    print_chats(request["chat_template"]);
    return 0;
  }
  if (!request.contains("model"))
    fail_usage("--model: is missing, want a tokenizer's file or folder, bytes, or --train");
  const auto tokenizer = choose_tokenizer(request["model"], "");
  const EncodeOptions options{.add_special = request.value("add_special", false),
                              .parse_special = !request.value("plain", false)};
  if (request.value("lines", false)) {
    refuse_beside_input(request, "--lines", {"prompt", "decode", "count", "repeats"});
    print_lines(*tokenizer, options);
    return 0;
  }
  std::vector<std::string> texts;
  if (request.contains("prompt")) texts.push_back(request["prompt"]);
  for (const std::string& path : paths_of(request)) texts.push_back(read_all(path));
  if (texts.empty()) texts.push_back(read_all("-"));
  const TableFormat format = output_format(request);
  if (request.contains("repeats") && texts.size() > 1 && format != TableFormat::table)
    fail_usage("--repeats: of ", texts.size(), " texts, want one or -o table");
  if (texts.size() > 1 && (format == TableFormat::csv || format == TableFormat::markdown))
    fail_usage("--output: ", request["output"].get<std::string>(), " of ", texts.size(),
               " texts, want one, or -o table, json or jsonl");
  if ((format == TableFormat::json || format == TableFormat::jsonl) && !request.contains("repeats")) {
    print_records(*tokenizer, texts, options, request);
    return 0;
  }
  for (const std::string& text : texts) {
    if (request.contains("repeats")) {
      print_speed(*tokenizer, text, options, request);
    } else if (request.value("decode", false)) {
      print_decoded(*tokenizer, text);
    } else {
      print_tokens(*tokenizer, text, options, request);
    }
  }
  return 0;
}

}  // namespace motet
