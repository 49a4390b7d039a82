#pragma once
#include "motet/checkpoints/tensors.h"
#include "motet/formats/safetensors.h"
#include "motet/models/model.h"

// Folders in our layout whose matrices (linear layers and the embedding's tables) are stored as inference reads them:
// NAME in I8 [N,K] and NAME_scale in F32 [N], where row n stands for scale[n] * values[n]. Their bits are those that
// ModelImpl::prepare(int8) makes, on any machine, so that a mapped file needs no work.
namespace motet {

/// Says so in config.json, whose model_type becomes motet: readers of LLaMA's would take the numbers as they lie.
void declare_8_bits(nlohmann::json& config, const ModelConfig&);
/// Whether the matrices of a folder of ours are so, by a config.json from which what says so is then taken. Throws
/// Error that begins with `where` and names the key for another way of storing them or another version of this one.
bool take_declared(nlohmann::json& config, const std::string& where);

/// Makes one tensor of each matrix and its scales: `load` gives float32, `kept` both as they lie. Nothing is read yet;
/// then a scale that is negative, infinite or NaN is an Error. Throws Error naming a matrix without scales, scales
/// without a matrix, and shapes or types that do not fit.
void join_scales(Tensors&);

/// The matrices of a model, by the names of their parameters.
std::map<std::string, LinearImpl*> matrices_of(ModelImpl&);
/// A matrix and its scales as they are written; `load` gives [N,K] in any type. They throw Error for a number that is
/// infinite or NaN.
std::vector<TensorPromise> promises_in_8_bits(const std::string& name, const std::function<Tensor()>& load);

}  // namespace motet
