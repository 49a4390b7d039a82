#include "motet/formats/model_file.h"

#include <fstream>

#include "motet/core/error.h"
#include "motet/core/file.h"

namespace motet {
namespace {

// The first bytes of a file; fewer when it is shorter.
std::string beginning(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail(path, ": no such file");
  if (std::filesystem::is_directory(path, error)) fail(path, ": is a folder, want a file");
  if (!std::filesystem::is_regular_file(path, error)) fail(path, ": is no regular file, want one");
  std::ifstream file(path, std::ios::binary);
  char bytes[8] = {};
  file.read(bytes, sizeof bytes);
  if (file.bad() || !file.is_open()) fail(path, ": cannot be read");
  return std::string(bytes, static_cast<size_t>(file.gcount()));
}

}  // namespace

ModelFileKind model_file_kind(const std::string& path) {
  const std::string head = beginning(path);
  if (head.starts_with("GGUF")) return ModelFileKind::gguf;
  if (head.starts_with("PK\x03\x04")) return ModelFileKind::pickle;  // what torch.save writes
  if (path.ends_with(".safetensors.index.json")) return ModelFileKind::safetensors_index;
  if (path.ends_with(".safetensors")) return ModelFileKind::safetensors;
  if (path.ends_with(".gguf")) return ModelFileKind::gguf;  // its reader says what is wrong
  // A bare pickle of protocol 2 to 5 goes on with an opcode, a width of 640 in llama2.c's header with a zero.
  if (head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5 && head[2] != 0)
    return ModelFileKind::pickle;
  for (const char* ending : {".pt", ".pth", ".pkl", ".ckpt"})
    if (path.ends_with(ending)) return ModelFileKind::pickle;
  if (path.ends_with(".bin")) return ModelFileKind::llama2c;
  fail(path, ": no model file, want .safetensors, .safetensors.index.json, .gguf or llama2.c's .bin");
}

std::string pickle_advice(const std::string& path) {
  const std::string made = std::filesystem::path(path).replace_extension(".safetensors").filename().string();
  return text(path,
              ": a pickle, which can run any code when it is opened, so it is not read; make safetensors of it:\n",
              "  import torch, safetensors.torch\n", "  weights = torch.load(\"", path,
              "\", map_location=\"cpu\", weights_only=True)\n",
              "  safetensors.torch.save_file({k: v.contiguous().clone() for k, v in weights.items()}, \"", made,
              "\", {\"format\": \"pt\"})");
}

}  // namespace motet
