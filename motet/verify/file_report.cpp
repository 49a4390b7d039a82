#include "motet/verify/file_report.h"

#include <algorithm>

namespace motet {

const Deviation* Findings::worst() const {
  const auto found = std::max_element(all.begin(), all.end(),
                                      [](const Deviation& a, const Deviation& b) { return a.error < b.error; });
  return found == all.end() ? nullptr : &*found;
}

const Deviation* FileReport::worst() const {
  const Deviation* worst = nullptr;
  for (const Findings* group : groups())
    if (const Deviation* own = group->worst(); own && (!worst || own->error > worst->error)) worst = own;
  return worst;
}

std::vector<Deviation> FileReport::failing() const {
  std::vector<Deviation> out;
  for (const Findings* group : groups())
    for (const Deviation& finding : group->all)
      if (!finding.passed()) out.push_back(finding);
  return out;
}

std::vector<Deviation> FileReport::loosened(double tolerance) const {
  std::vector<Deviation> out;
  for (const Findings* group : groups())
    for (const Deviation& finding : group->all)
      if (finding.tolerance > tolerance) out.push_back(finding);
  return out;
}

}  // namespace motet
