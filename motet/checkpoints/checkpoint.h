#pragma once
#include "motet/checkpoints/layout.h"
#include "motet/checkpoints/tensors.h"

// A model as it lies on the disk, in any layout that we read: what it is, and its tensors under our names.
namespace motet {

struct Checkpoint {
  std::string format;              // "safetensors", "gguf", "llama2c"
  const Layout* layout = nullptr;  // of the names and of config.json; llama for gguf and llama2c
  ModelConfig config;
  nlohmann::json published;          // config.json; null for gguf and llama2c
  std::filesystem::path folder;      // of config.json; empty for single files
  Tensors tensors;                   // as stored
  std::vector<Row> rows;             // how they hold ours
  std::vector<std::string> ignored;  // stored tensors that are no parameters of the model
  bool in_8_bits = false;            // matrices as `motet convert --weights int8` writes them; else numbers of any type
};

/// Opens a model folder (config.json with model.safetensors or its shards), a .gguf or a llama2.c .bin; reads no
/// tensor. `mechanism`: the user's word for a folder whose config does not say it ("coca"). Throws Error in one line
/// naming the file and what is wrong: missing and extra tensors and those of another shape included. A pickle is
/// refused with the lines of Python that make safetensors of it.
Checkpoint open_checkpoint(const std::filesystem::path&, const std::string& mechanism = "");

/// A folder whose config.json was read and maybe changed already.
Checkpoint open_folder(const std::filesystem::path&, const nlohmann::json& config, const std::string& mechanism = "");

/// A tensor of ours in a checkpoint: `part` of what `row` takes from the stored one.
struct OurTensor {
  const Row* row;
  size_t part;
  const StoredTensor* stored;
  Tensor load() const { return row->taken(stored->load())[part]; }
};
/// By our names. Points into the checkpoint.
std::map<std::string, OurTensor> our_tensors(const Checkpoint&);

/// Where a model's numbers lie, and in which dtype.
struct Placement {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  /// For inference alone, where not float32: matrices that are stored in this type stay so, in the mapped file, as
  /// ModelImpl::prepare would keep them, with nothing copied unless the layout orders them otherwise. On another
  /// device, there. Where the model is not of float32 they are widened.
  WeightType weights = WeightType::float32;
};
/// How inference keeps the matrices of a checkpoint with no number changed: in 8 or 16 bits where every one of them is
/// stored so, else in float32.
WeightType stored_weights(const Checkpoint&);
/// The same where a device gains by it: on the CPU; elsewhere 16 bits would be widened for every prompt.
WeightType usual_weights(const Checkpoint&, at::Device);
/// Throws Error as load_model does where the tensors are not those that config.json asks for, by name, shape or type;
/// reads none of them.
void check_tensors(const Checkpoint&);
/// The model with its values. Throws Error before memory is taken for sizes that the stored shapes do not have.
Model load_model(const Checkpoint&, const Placement& = {});

/// The train.dtype that a model of ours was trained with, as its config.json records it; "float32" for others.
std::string trained_dtype(const Checkpoint&);

/// The parts of open_checkpoint that single files fill in.
Checkpoint open_gguf(const std::string& path);
Checkpoint open_llama2c(const std::string& path);

/// Checks names (missing, extra) of checkpoint.tensors against checkpoint.rows and fills `ignored`.
void match_names(Checkpoint&);

}  // namespace motet
