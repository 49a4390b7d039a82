#pragma once
#include <filesystem>
#include <optional>

#include "motet/checkpoints/companions.h"
#include "motet/commands/options.h"
#include "motet/core/file.h"
#include "motet/generate/generate.h"
#include "motet/report/table.h"

namespace motet {

/// The request's fields named in the table, parsed and checked; messages begin with "--name".
nlohmann::json request_values(const OptionTable&, const nlohmann::json& request);
template <class Struct>
Struct read_request(const Fields<Struct>& options, const nlohmann::json& request) {
  return options.read(request_values(options.table(), request));
}
/// Throws UsageError for the first of these fields that the request has: --name has no meaning for `what`.
void refuse_flags(const nlohmann::json& request, const std::string& what, std::initializer_list<const char*> fields);

/// -t/--threads, else the processors of this process; sets torch's number too.
int64_t request_threads(const nlohmann::json& request);

/// Prints the table in the format of -o/--output on stdout.
void print_table(const Table&, const nlohmann::json& request);
TableFormat output_format(const nlohmann::json& request);

/// Puts a part of a text on stdout at once. Throws Error when nobody can take it any more: the rest is not made then.
void show(std::string_view text);

/// The folder of a run, which no other process trains while this lives. A new one is --out, or runs/<kind>-<time>, with
/// -2, -3 ... behind it when that is taken; it is made and holds an empty metrics.jsonl, and a run that ends without a
/// record takes that away, so that it can be tried again. Throws UsageError for an --out that has one.
class RunFolder {
 public:
  RunFolder(const nlohmann::json& request, const std::string& kind);
  /// One that is there and goes on. Throws Error when another process trains it.
  explicit RunFolder(std::filesystem::path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  void lock() { lock_.emplace(path_, "trains this run"); }

  std::filesystem::path path_;
  std::optional<FolderLock> lock_;
};

/// A model folder itself, the last checkpoint of a run folder, or with ":best" behind a run folder its best. Throws
/// UsageError without --model, Error for a comparison and for a run that has no checkpoint, naming the models that
/// there are.
std::filesystem::path model_folder(const nlohmann::json& request, const char* field);

/// A model that is only to be run, its matrices kept as --weights says, and what lies beside it.
struct LoadedModel {
  Model model;
  std::unique_ptr<Tokenizer> tokenizer;
  Companions companions;
  WeightType weights = WeightType::float32;
};
/// What task.json beside a model says; null of a model of texts. Throws Error for a damaged one.
nlohmann::json task_of(const std::filesystem::path& model_folder);

LoadedModel load_for_inference(const std::filesystem::path& folder, const SamplingRequest&);

/// A model that is to be scored, as --dtype and --weights say. Throws UsageError for weights in fewer bits and another
/// dtype than float32.
Model load_for_scoring(const Checkpoint&, const EvalRequest&, at::Device);

/// The tokenizer beside a model. Throws Error when it has more tokens than the model, and for a model of a task.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& model_folder, const ModelConfig&);

/// With --stop, and the end tokens of the model unless --ignore-eos.
GenerateOptions generate_options(const nlohmann::json& request, const SamplingRequest&, const LoadedModel&);

}  // namespace motet
