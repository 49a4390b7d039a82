#pragma once
#include "motet/attention/torch.h"
#include "motet/verify/file_report.h"

// `motet verify`: recomputes recorded results with our operator and mechanisms. README.md of this folder.
namespace motet {

struct VerifyOptions {
  at::ScalarType dtype = at::kDouble;
  double tolerance = 1e-10;
};

/// 1e-10 in float64; for narrower types what their rounding costs on the recorded files.
double default_tolerance(at::ScalarType);

/// Recomputes every output, intermediate, variant, gradient and mask of a golden file, from its metadata and tensors
/// alone. Throws Error in one line that begins with the path when the file is damaged, incomplete or says something
/// that our code cannot express.
FileReport verify_file(const std::string& path, const VerifyOptions&);

/// The files that PATH... names: files as they are, of a folder its *.safetensors by name. Throws Error.
std::vector<std::string> golden_files(const std::vector<std::string>& paths);

}  // namespace motet
