#pragma once
#include "motet/experiments/results.h"
#include "motet/report/html.h"
#include "motet/report/table.h"

// What an experiment came to, as text that no person edits.
namespace motet {

/// Its verdicts, a table of its arms at each scale, and what it cost; Markdown.
std::string results_text(const Experiment&, const ExperimentResults&);

/// The experiment's README with that text between its marks. An empty README becomes a title, the claim and the text.
/// Throws Error that begins with `where` for one that has no marks.
std::string readme_with(const std::string& readme, const Experiment&, const ExperimentResults&,
                        const std::string& where);

struct Reported {
  Experiment experiment;
  ExperimentResults results;
};
/// One row an experiment: claim, published figure, ours with its 95 % interval, verdict, scale, cost.
Table experiments_table(const std::vector<Reported>&);
/// docs/experiments.md.
std::string experiments_text(const std::vector<Reported>&);
/// "What holds at small scale" for the project's README: a line a verdict, at most `most`, nulls among them.
std::string summary_text(const std::vector<Reported>&, size_t most = 12);
/// The text with `inner` between <!-- NAME --> and <!-- /NAME -->. Throws Error that begins with `where` without them.
std::string between_marks(const std::string& text, const std::string& name, const std::string& inner,
                          const std::string& where);
/// A page with the table, and with the curves of the cells of a single experiment.
ReportData experiments_page(const std::vector<Reported>&, const std::string& command);

}  // namespace motet
