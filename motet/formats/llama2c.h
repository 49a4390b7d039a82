// The .bin files of llama2.c: seven integers, then float32 matrices in a fixed order. Version 0, which has no magic.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "motet/core/file.h"
#include "motet/formats/safetensors.h"

namespace motet {

struct Llama2cSizes {
  int64_t hidden_size = 0, intermediate_size = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0, vocab_size = 0,
          context = 0;
  bool tied = true;  // the output matrix is the embedding
};

struct Llama2cContent {
  Llama2cSizes sizes;
  // Named as Hugging Face's llama names them, each layer's apart; rows of q and k have interleaved rotary pairs.
  std::vector<TensorView> tensors;
};

// Throws Error in one line that begins with `where`: sizes out of range or that do not divide, another length than the
// sizes ask for, a later version of the format.
Llama2cContent parse_llama2c(std::span<const std::byte> bytes, const std::string& where);

// A file in memory. The views live as long as this object.
class Llama2cFile {
 public:
  explicit Llama2cFile(const std::string& path) : file_(path), content_(parse_llama2c(file_.bytes(), path)) {}
  const Llama2cSizes& sizes() const { return content_.sizes; }
  const std::vector<TensorView>& tensors() const { return content_.tensors; }

 private:
  MappedFile file_;
  Llama2cContent content_;
};

}  // namespace motet
