#include "apps/motet/engine.h"

#include <dlfcn.h>

#include <filesystem>

#include "motet/core/error.h"
#include "motet/motet.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

fs::path find_library() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) fail("cannot find the program's own folder: /proc/self/exe: ", error.message());
  for (const char* place : {".", "../lib", "../lib64", "../lib/x86_64-linux-gnu", "../lib/aarch64-linux-gnu"}) {
    const fs::path candidate = (folder / place / "libmotet.so").lexically_normal();
    if (fs::exists(candidate, error)) return candidate;
  }
  fail("libmotet.so is neither in ", quote(folder.string()), " nor in ../lib beside it, want a whole build or install");
}

}  // namespace

int run_engine(const std::string& subcommand, const std::string& request) {
  const fs::path path = find_library();
  void* library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!library) fail("cannot load ", quote(path.string()), ": ", ::dlerror());
  const auto run = reinterpret_cast<decltype(&motet_run)>(::dlsym(library, "motet_run"));
  if (!run) fail("cannot use ", quote(path.string()), ": it has no motet_run");
  return run(subcommand.c_str(), request.c_str());
}

}  // namespace motet
