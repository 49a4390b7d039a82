#include "motet/verify/file_report.h"

#include <algorithm>

namespace motet {

const Finding* Findings::worst() const {
  const auto found =
      std::max_element(all.begin(), all.end(), [](const Finding& a, const Finding& b) { return a.error < b.error; });
  return found == all.end() ? nullptr : &*found;
}

const Finding* FileReport::worst() const {
  const Finding* worst = nullptr;
  for (const Findings* group : groups())
    if (const Finding* own = group->worst(); own && (!worst || own->error > worst->error)) worst = own;
  return worst;
}

std::vector<Finding> FileReport::failing() const {
  std::vector<Finding> out;
  for (const Findings* group : groups())
    for (const Finding& finding : group->all)
      if (!finding.passed()) out.push_back(finding);
  return out;
}

std::vector<Finding> FileReport::loosened(double tolerance) const {
  std::vector<Finding> out;
  for (const Findings* group : groups())
    for (const Finding& finding : group->all)
      if (finding.tolerance > tolerance) out.push_back(finding);
  return out;
}

}  // namespace motet
