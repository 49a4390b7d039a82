#include "motet/report/html_data.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "motet/core/utf8.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr size_t kCurvePoints = 60000;  // of all curves together: about 0.4 MB
constexpr int kFewestTokens = 16;       // pictures are not cut below this; layers go first
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

json rounded_all(const std::vector<double>& values, int digits = 5) {
  json out = json::array();
  for (double value : values) out.push_back(rounded(value, digits));
  return out;
}

// Means of at most `limit` equal parts; a part with a value that is not finite has none itself, so that a divergence
// shows.
std::vector<double> part_means(const std::vector<double>& values, size_t limit) {
  if (values.size() <= limit) return values;
  std::vector<double> out(limit);
  for (size_t part = 0; part < limit; ++part) {
    const size_t begin = part * values.size() / limit, end = (part + 1) * values.size() / limit;
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += values[i];
    out[part] = sum / static_cast<double>(end - begin);
  }
  return out;
}

// At most `limit` of the values, evenly spaced, the last one included.
std::vector<double> picked(const std::vector<double>& values, size_t limit) {
  if (values.size() <= limit) return values;
  std::vector<double> out(limit);
  for (size_t i = 0; i < limit; ++i) out[i] = values[(i + 1) * values.size() / limit - 1];
  return out;
}

// Step lists are mostly equal: each different one is stored once.
class Axes {
 public:
  size_t add(const std::vector<double>& values) {
    const auto [entry, is_new] = index_.emplace(values, index_.size());
    if (is_new) list_.push_back(rounded_all(values, 10));
    return entry->second;
  }
  const json& list() const { return list_; }

 private:
  std::map<std::vector<double>, size_t> index_;
  json list_ = json::array();
};

constexpr size_t kTracePoints = 400;  // of a line; a chart is about as many pixels wide

void add_traces(const ReportData& data, Axes& axes, json& out) {
  out["traces"] = json::array();
  for (const Trace& trace : data.traces) {
    json lines = json::array();
    for (const TraceLine& line : trace.lines) {
      std::vector<double> steps = part_means(line.step, kTracePoints);
      for (double& step : steps) step = std::round(step);
      lines.push_back({{"name", printable(line.name)},
                       {"x", axes.add(steps)},
                       {"y", rounded_all(part_means(line.value, kTracePoints))}});
      if (line.step.size() > kTracePoints) out["thinned"] = true;
    }
    out["traces"].push_back({{"title", printable(trace.title)},
                             {"unit", printable(trace.unit)},
                             {"explanation", printable(trace.explanation)},
                             {"logarithmic", trace.logarithmic},
                             {"lines", std::move(lines)}});
  }
}

template <class Index>
void add_curves(const ReportData& data, const Index& index_of, Axes& axes, json& out) {
  if (data.curves.empty()) return;
  const size_t limit = std::clamp<size_t>(kCurvePoints / data.curves.size(), 64, 1000);
  json curves = json::array();
  for (const Curve& curve : data.curves) {
    const auto cut = [](std::vector<double> values, size_t size) { return values.resize(size), values; };
    const size_t train = std::min(curve.step.size(), curve.loss.size());
    const size_t eval = std::min(curve.eval_step.size(), curve.eval_loss.size());
    std::vector<double> steps = part_means(cut(curve.step, train), limit);
    for (double& step : steps) step = std::round(step);
    if (train > limit) out["thinned"] = true;
    curves.push_back({{"m", index_of(curve.mechanism)},
                      {"seed", curve.seed},
                      {"x", axes.add(steps)},
                      {"y", rounded_all(part_means(cut(curve.loss, train), limit))},
                      {"ex", axes.add(picked(cut(curve.eval_step, eval), limit))},
                      {"ey", rounded_all(picked(cut(curve.eval_loss, eval), limit))},
                      {"tokens", rounded(curve.tokens_per_step)},
                      {"seconds", rounded(curve.seconds_per_step)}});
  }
  out["curves"] = std::move(curves);
  out["by_tokens"] = data.curves_by_tokens;
}

json axes_json(const std::vector<CostAxis>& axes) {
  json out = json::array();
  for (const CostAxis& axis : axes)
    out.push_back(
        {{"name", printable(axis.name)}, {"unit", printable(axis.unit)}, {"more_is_better", axis.more_is_better}});
  return out;
}

template <class Index>
void add_scaling(const ReportData& data, const Index& index_of, json& out) {
  out["scaling"] = {{"axes", axes_json(data.scaling_axes)}, {"points", json::array()}, {"lines", json::array()}};
  for (const ScalingPoint& point : data.scaling_points)
    out["scaling"]["points"].push_back({{"m", index_of(point.mechanism)},
                                        {"size", printable(point.size)},
                                        {"loss", rounded(point.loss)},
                                        {"deviation", rounded(point.deviation)},
                                        {"costs", rounded_all(point.costs, 6)}});
  for (const ScalingLine& line : data.scaling_lines)
    out["scaling"]["lines"].push_back({{"m", index_of(line.mechanism)},
                                       {"axis", line.axis},
                                       {"x", rounded_all(line.cost, 6)},
                                       {"y", rounded_all(line.loss)}});
}

bool is_whole(const AttentionPicture& picture) {
  return picture.rows > 0 && picture.columns > 0 &&
         picture.values.size() == static_cast<size_t>(picture.rows) * static_cast<size_t>(picture.columns);
}

// Keys that query `row` sees when the last query is the last key.
int visible(const AttentionPicture& picture, int row) {
  return std::clamp(row + 1 + picture.columns - picture.rows, 0, picture.columns);
}

bool is_causal(const AttentionPicture& picture) {
  for (int row = 0; row < picture.rows; ++row)
    for (int column = visible(picture, row); column < picture.columns; ++column)
      if (picture.values[static_cast<size_t>(row) * picture.columns + column] != 0) return false;
  return true;
}

// The picture of the first `tokens` queries and of the keys up to the last of them.
AttentionPicture cropped(const AttentionPicture& picture, int tokens) {
  if (picture.rows <= tokens) return picture;
  AttentionPicture out = picture;
  out.rows = tokens;
  out.columns =
      picture.columns < picture.rows ? std::min(picture.columns, tokens) : picture.columns - (picture.rows - tokens);
  out.values.clear();
  for (int row = 0; row < out.rows; ++row) {
    const auto begin = picture.values.begin() + static_cast<std::ptrdiff_t>(row) * picture.columns;
    out.values.insert(out.values.end(), begin, begin + out.columns);
  }
  return out;
}

// Two characters a value: 4096 levels of [0, scale], or of [-scale, scale] when a value is negative; ".." where not
// finite.
json packed(const AttentionPicture& picture, bool causal, size_t mechanism) {
  float scale = 0;
  bool is_signed = false;
  for (float value : picture.values) {
    if (!std::isfinite(value)) continue;
    scale = std::max(scale, std::abs(value));
    is_signed = is_signed || value < 0;
  }
  std::string characters;
  for (int row = 0; row < picture.rows; ++row) {
    const int end = causal ? visible(picture, row) : picture.columns;
    for (int column = 0; column < end; ++column) {
      const float value = picture.values[static_cast<size_t>(row) * picture.columns + column];
      if (!std::isfinite(value)) {
        characters += "..";
        continue;
      }
      const float part = scale > 0 ? value / scale : 0;
      const auto level = static_cast<size_t>(is_signed ? std::lround(part * 2047) + 2048 : std::lround(part * 4095));
      characters += {kAlphabet[level / 64], kAlphabet[level % 64]};
    }
  }
  return {{"m", mechanism},
          {"layer", picture.layer},
          {"label", printable(picture.label)},
          {"kind", picture.kind == "after" ? "after" : "before"},
          {"head", picture.head},
          {"rows", picture.rows},
          {"columns", picture.columns},
          {"causal", causal},
          {"signed", is_signed},
          {"scale", rounded(scale)},
          {"data", std::move(characters)}};
}

template <class Index>
void add_pictures(const ReportData& data, size_t limit, const Index& index_of, json& out) {
  struct Whole {
    const AttentionPicture* picture;
    bool causal;
  };
  std::vector<Whole> pictures;
  int tokens = 0, layers = 0;
  for (const AttentionPicture& picture : data.pictures) {
    if (!is_whole(picture)) continue;
    pictures.push_back({&picture, is_causal(picture)});
    tokens = std::max(tokens, picture.rows);
    layers = std::max(layers, picture.layer + 1);
  }
  const auto fits = [&](int some_tokens, int some_layers) {
    double bytes = 0;
    for (const auto& [picture, causal] : pictures) {
      if (picture->layer >= some_layers) continue;
      const double rows = std::min(some_tokens, picture->rows);
      const double columns = picture->columns - (picture->rows - rows);
      bytes += 150 + 2 * (causal ? rows * (rows + 1) / 2 + rows * (columns - rows) : rows * columns);
    }
    return bytes <= limit;
  };
  const int all_tokens = tokens, all_layers = layers;
  while (tokens > kFewestTokens && !fits(tokens, layers)) tokens = std::max(kFewestTokens, tokens * 9 / 10);
  while (layers > 1 && !fits(tokens, layers)) --layers;
  out["pictures"] = json::array();
  for (const auto& [picture, causal] : pictures)
    if (picture->layer < layers)
      out["pictures"].push_back(packed(cropped(*picture, tokens), causal, index_of(picture->mechanism)));
  out["tokens_cut"] = tokens < all_tokens ? tokens : 0;
  out["layers_cut"] = layers < all_layers ? layers : 0;
  out["tokens"] = json::array();
  for (const std::string& token : data.sample_tokens) out["tokens"].push_back(printable(token));
}

}  // namespace

std::string printable(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    const auto first = static_cast<unsigned char>(bytes[0]);
    if (step.kind != Utf8Step::Kind::character) {
      out += "\xEF\xBF\xBD";
    } else if ((first < 0x20 && first != '\n' && first != '\t') || first == 0x7F) {
      out += {'\xE2', '\x90', static_cast<char>(first == 0x7F ? 0xA1 : 0x80 + first)};
    } else {
      out += bytes.substr(0, step.size);
    }
    bytes.remove_prefix(step.size);
  }
  return out;
}

std::vector<std::string> drawn_mechanisms(const ReportData& data) {
  std::vector<std::string> names;
  const auto add = [&](const auto& list) {
    for (const auto& item : list)
      if (std::find(names.begin(), names.end(), item.mechanism) == names.end()) names.push_back(item.mechanism);
  };
  add(data.curves), add(data.points), add(data.scaling_points), add(data.samples), add(data.pictures),
      add(data.matrices);
  return names;
}

Mark mark_of(const std::vector<std::string>& mechanisms, const std::string& baseline, size_t index) {
  if (mechanisms[index] == baseline) return {};
  const auto before = mechanisms.begin() + static_cast<std::ptrdiff_t>(index);
  const int others = static_cast<int>(index) - (std::find(mechanisms.begin(), before, baseline) == before ? 0 : 1);
  return {1 + others % kColours, 1 + others % kShapes};
}

json rounded(double value, int digits) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.*g", digits, value);
  const double near = std::strtod(buffer, nullptr);
  if (near == std::floor(near) && std::abs(near) < 1e15) return static_cast<int64_t>(near);
  return near;
}

json report_json(const ReportData& data, size_t picture_bytes) {
  const std::vector<std::string> names = drawn_mechanisms(data);
  const auto index_of = [&](const std::string& name) {
    return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  json out = {{"thinned", false},          {"mechanisms", json::array()}, {"points", json::array()},
              {"matrices", json::array()}, {"curves", json::array()},     {"axes", json::array()}};
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [colour, shape] = mark_of(names, data.baseline, i);
    out["mechanisms"].push_back({{"name", printable(names[i])}, {"colour", colour}, {"shape", shape}});
  }
  Axes axes;
  add_curves(data, index_of, axes, out);
  add_traces(data, axes, out);
  out["axes"] = axes.list();
  out["cost_axes"] = axes_json(data.cost_axes);
  for (const CostPoint& point : data.points)
    out["points"].push_back({{"m", index_of(point.mechanism)},
                             {"loss", rounded(point.loss)},
                             {"deviation", rounded(point.deviation)},
                             {"costs", rounded_all(point.costs, 6)}});
  add_scaling(data, index_of, out);
  add_pictures(data, picture_bytes, index_of, out);
  for (const MixMatrix& matrix : data.matrices) {
    if (matrix.values.size() != static_cast<size_t>(matrix.rows) * static_cast<size_t>(matrix.columns)) continue;
    out["matrices"].push_back({{"m", index_of(matrix.mechanism)},
                               {"layer", matrix.layer},
                               {"label", printable(matrix.label)},
                               {"rows", matrix.rows},
                               {"columns", matrix.columns},
                               {"values", rounded_all(matrix.values, 4)}});
  }
  return out;
}

std::string script_json(const json& value) {
  const std::string plain = value.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string out;
  out.reserve(plain.size());
  for (char c : plain) {
    // In JSON these three stand only inside strings, where an escape means the same.
    if (c == '<' || c == '>' || c == '&') {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace motet
