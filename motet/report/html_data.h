// The numbers of a report as JSON for its scripts: rounded, thinned and packed so that the page stays small.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "motet/report/html.h"

namespace motet {

// `bytes` as valid UTF-8 that HTML can carry: invalid bytes become U+FFFD, control characters their pictures (U+2400
// and on); newline and tab stay.
std::string printable(std::string_view bytes);

// Every mechanism that `data` draws, in order of first appearance.
std::vector<std::string> drawn_mechanisms(const ReportData& data);

// How a mechanism is drawn: a colour of report.css and a shape of html.cpp, of which 0 are the baseline's alone. The
// others take turns with one shape less than colours, so that no two of 42 are the same.
struct Mark {
  int colour = 0, shape = 0;
  bool operator==(const Mark&) const = default;
};
constexpr int kColours = 7, kShapes = 6;  // beside the baseline's
Mark mark_of(const std::vector<std::string>& mechanisms, const std::string& baseline, size_t index);

// `value` to `digits` significant digits; whole numbers stay exact; null when not finite.
nlohmann::json rounded(double value, int digits = 5);

// Of all packed pictures of a report together.
inline constexpr size_t kPictureBytes = 1200 * 1024;

// All that the scripts draw. Beside the packed data: "thinned" (curves are means of equal parts), "tokens_cut" and
// "layers_cut" (pictures show only so many tokens or layers; 0 when whole).
nlohmann::json report_json(const ReportData& data, size_t picture_bytes = kPictureBytes);

// JSON text that may stand inside a script element: no "<", ">" or "&" remains.
std::string script_json(const nlohmann::json& value);

}  // namespace motet
