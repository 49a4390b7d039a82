#pragma once
#include "motet/checkpoints/checkpoint.h"
#include "motet/checkpoints/companions.h"

namespace motet {

/// The same function in the words of another layout: a change of the configuration, and what becomes of our tensors.
struct Adaptation {
  ModelConfig config;
  /// Our name -> its value in the new words. Names are those of `config`'s model.
  std::map<std::string, std::function<Tensor()>> tensors;
};

/// Brings a checkpoint to what `to` holds: the pairing of rotary dimensions (rows inside heads), the weight of the head
/// norm of differential attention (into the output projection, or 1). Everything else must fit as it is. Throws Error
/// naming the option that `to` cannot say. The checkpoint must outlive the tensors.
Adaptation adapted(const Checkpoint&, const Layout& to);

struct ConvertOptions {
  std::optional<at::ScalarType> dtype = {};  // of all numbers; else each keeps its type
  bool allow_overflow = false;               // what a narrower type cannot hold becomes infinite
  WeightType weights = WeightType::float32;  // int8: matrices in 8 bits (eight_bits.h), what is left as above
  ExtraFiles extra = {};                     // further files of the folder
};

/// Writes the folder `out`: config.json and model.safetensors in the layout `to`, and the companions of the source.
/// Into our layout, config.json and the tensors that are no parameters come along as published_config.json and
/// published_buffers.safetensors; back in their own layout they are put where they were, so that the round trip gives
/// the same bytes; a tensor that repeats a parameter follows it into another type. One tensor at a time is in memory.
/// The folder appears whole or not at all. Throws Error as check_tensors does, and naming the tensor whose finite
/// numbers `dtype` cannot hold, or that 8 bits cannot: one with infinite numbers or NaN; UsageError for 8 bits in
/// another layout than ours.
struct Converted {
  size_t tensors = 0;
  int64_t numbers = 0;
  bool restored = false;  // config.json is the published one, with another torch_dtype where that changed
};
Converted convert_checkpoint(const Checkpoint&, const Layout& to, const std::filesystem::path& out,
                             const ConvertOptions& options = {});

}  // namespace motet
