// One offline HTML page about a comparison or a single run.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace motet {

// What html_report draws. Everything may be left empty: a section without content is left out. Texts are plain UTF-8
// (invalid bytes and control characters are replaced, markup is escaped); numbers that are not finite are shown as
// gaps.

// One training run. `loss` is the training loss at `step`, `eval_loss` the validation loss at `eval_step`, in nats a
// token.
struct Curve {
  std::string mechanism;
  uint64_t seed = 0;
  std::vector<double> step, loss;
  std::vector<double> eval_step, eval_loss;
  double tokens_per_step = 0, seconds_per_step = 0;  // > 0 in every curve: offered as horizontal axes beside steps
};

// A quantity over the steps of a run, in lines that share an axis: one, or one for each layer or part of the model.
struct TraceLine {
  std::string name;  // "layer 3", "attention"; of a single line empty
  std::vector<double> step, value;
};
struct Trace {
  std::string title, unit;
  std::string explanation;  // a sentence under the chart
  bool logarithmic = false;
  std::vector<TraceLine> lines;
};

// One head's T x S weights over the sample tokens. Pictures of one mechanism and layer are shown together.
struct AttentionPicture {
  std::string mechanism;
  int layer = 0;              // from 0; printed from 1
  std::string label;          // "head 3"
  std::string kind;           // "before" (softmax weights, before mixing) or "after" (after mixing; may be negative)
  int head = 0;               // from 0
  int rows = 0, columns = 0;  // queries, keys; the last query is the last key
  std::vector<float> values;  // rows x columns
};

// A learned map over heads, or a row of numbers (lambda, gates), in one layer. One row: drawn as numbers over depth;
// else as a matrix.
struct MixMatrix {
  std::string mechanism;
  int layer = 0;              // from 0
  std::string label;          // "static, before softmax", "lambda"
  int rows = 0, columns = 0;  // input heads, output heads
  std::vector<double> values;
};

struct CostAxis {
  std::string name, unit;       // "FLOPs per token", "FLOP"
  bool more_is_better = false;  // "tokens per second"
};

struct CostPoint {
  std::string mechanism;
  double loss = NAN, deviation = NAN;  // mean and standard deviation over seeds
  std::vector<double> costs;           // one for each CostAxis
};

// A mechanism at one size.
struct ScalingPoint {
  std::string mechanism, size;
  double loss = NAN, deviation = NAN;
  std::vector<double> costs;  // one for each scaling axis
};

// The line of a law through a mechanism's points.
struct ScalingLine {
  std::string mechanism;
  size_t axis = 0;
  std::vector<double> cost, loss;
};

struct ReportColumn {
  std::string name, unit;
  std::string explanation;  // shown when pointed at
  bool numeric = true;
};

struct ReportCell {
  std::string text;
  double value = NAN;  // what a numeric column is sorted by; NaN goes last
};

struct ReportTable {
  std::vector<ReportColumn> columns;
  std::vector<std::vector<ReportCell>> rows;
  std::vector<std::string> notes;  // lines under the table
};

struct ReportSample {
  std::string mechanism, text;  // the continuation, without the prompt
};

struct ReportData {
  std::string title, summary;  // the verdict in one or two plain sentences
  std::vector<std::pair<std::string, std::string>>
      facts;                           // {"Budget", "1,000 steps"}; a line of short facts under the verdict
  std::string command, configuration;  // what reproduces the run; the resolved TOML
  std::vector<std::pair<std::string, std::string>> further_commands;  // {"Go on", "motet train --resume runs/a"}
  std::string created, version;
  std::string baseline;               // the mechanism drawn in black
  std::vector<ReportColumn> columns;  // a first column that holds a mechanism's name gets its mark
  std::vector<std::vector<ReportCell>> rows;
  std::vector<std::string> notes;  // lines under the table
  std::vector<Curve> curves;
  bool curves_by_tokens = false;  // what they call a step is a token of the training
  std::vector<Trace> traces;
  std::string sample_prompt;
  std::vector<ReportSample> samples;
  std::vector<std::string> sample_tokens;  // of the attention pictures
  std::vector<AttentionPicture> pictures;
  std::vector<MixMatrix> matrices;
  std::vector<CostAxis> cost_axes;
  std::vector<CostPoint> points;
  std::vector<CostAxis> scaling_axes;
  std::vector<ScalingPoint> scaling_points;
  std::vector<ScalingLine> scaling_lines;
  ReportTable scaling_table;
};

// The time now, for `created`.
std::string report_time();

// One HTML page that needs no network and no other file, at most about 2 MB: long curves are thinned to means of equal
// parts, and attention pictures are cut to the first tokens that fit (both said on the page). Tables and texts need no
// JavaScript.
std::string html_report(const ReportData& data);

}  // namespace motet
