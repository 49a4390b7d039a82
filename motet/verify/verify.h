#pragma once
#include "motet/ops/torch.h"
#include "motet/verify/file_report.h"

// `motet verify`: recomputes recorded results with our operator and mechanisms. README.md of this folder.
namespace motet {

struct VerifyOptions {
  at::ScalarType dtype = at::kDouble;
  at::Device device = at::kCPU;
  double tolerance = 1e-10;
};

/// 1e-10 in float64; for narrower types what their rounding costs on the recorded files.
double default_tolerance(at::ScalarType);

/// Recomputes every output, intermediate, variant, gradient and mask of a golden file, from its metadata and tensors
/// alone, or of a model folder (model_verification.h). Throws Error in one line that begins with the path when the file
/// is damaged, incomplete or says something that our code cannot express.
FileReport verify_file(const std::string& path, const VerifyOptions&);

/// The files and model folders that PATH... names: those as they are, of another folder its *.safetensors and model
/// folders by name. Throws Error.
std::vector<std::string> golden_files(const std::vector<std::string>& paths);

}  // namespace motet
