#include "motet/ops/cuda_library.h"

#include <dlfcn.h>

#include <filesystem>

namespace motet {
namespace {

CudaLibrary opened() {
  CudaLibrary library;
  Dl_info here{};
  dladdr(reinterpret_cast<const void*>(&cuda_library), &here);
  library.path = (std::filesystem::path(here.dli_fname).parent_path() / "libmotet_cuda.so").string();
  if (!std::filesystem::exists(library.path)) {
    library.missing = "no libmotet_cuda.so lies beside libmotet_ops.so, want a build with nvcc 12.4 or newer";
    return library;
  }
  library.handle = dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle) library.missing = dlerror();
  return library;
}

}  // namespace

void* CudaLibrary::symbol(const char* name) const { return handle ? dlsym(handle, name) : nullptr; }

const CudaLibrary& cuda_library() {
  static const CudaLibrary library = opened();
  return library;
}

}  // namespace motet
