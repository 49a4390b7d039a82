// What kind of file a model comes in.
#pragma once

#include <string>

namespace motet {

enum class ModelFileKind { safetensors, safetensors_index, gguf, llama2c, pickle };

// By the first bytes, and where a format has no magic (llama2.c's .bin, safetensors) by the ending of the name too.
// Throws Error naming the path when it is none of them or cannot be read.
ModelFileKind model_file_kind(const std::string& path);

// Why a pickle is not read, and the three lines of Python that make safetensors of it.
std::string pickle_advice(const std::string& path);

}  // namespace motet
