#include "motet/ops/failure.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <new>
#include <optional>

#include "motet/core/error.h"
#include "motet/core/words.h"

namespace motet {
namespace {

// "... you tried to allocate 4096 bytes. Error code 12 ..." of torch's allocator of the CPU, "CUDA out of memory. Tried
// to allocate 2.00 GiB. GPU 0 ..." of that of a GPU.
std::optional<std::string> memory_message(const std::string& message) {
  static const std::string kTried = "ried to allocate ";
  const size_t at = message.find(kTried);
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = at + kTried.size();
  return text(message.starts_with("CUDA") ? "out of memory of the GPU" : "out of memory", ": a tensor of ",
              message.substr(begin, message.find(". ", begin) - begin),
              " does not fit, want a smaller batch, context or model");
}

}  // namespace

std::string told(const std::exception& error) {
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) {
    const std::string message = torch->what_without_backtrace();
    return memory_message(message).value_or(first_line(message));
  }
  if (dynamic_cast<const Error*>(&error)) return error.what();
  if (dynamic_cast<const std::bad_alloc*>(&error)) return "out of memory";
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return text("cannot use '", file->path1().string(), "': ", file->code().message());
  return first_line(error.what());
}

}  // namespace motet
