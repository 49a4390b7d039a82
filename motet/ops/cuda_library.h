#pragma once
#include <string>

// libmotet_cuda.so: the CUDA kernels, torch-free, built where there is an nvcc and opened when something lies on a GPU,
// so that one build serves machines with and without.
namespace motet {

struct CudaLibrary {
  std::string path;     // where it is looked for: beside libmotet_ops.so
  std::string missing;  // "" when it is open, else why not
  void* handle = nullptr;

  /// A function that hands out a table of kernels; null when the library is not open.
  void* symbol(const char* name) const;
};

/// Opened at the first call, and never closed.
const CudaLibrary& cuda_library();

}  // namespace motet
