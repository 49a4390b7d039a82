#include "motet/models/embedding.h"

#include "motet/core/error.h"

namespace motet {
namespace {

const std::string kTrunk = "model.";
constexpr const char *kTokens = "embed_tokens", *kPositions = "embed_positions", *kTypes = "embed_types";

}  // namespace

Embedding::Embedding(const ModelConfig& c, torch::nn::Module& trunk, at::Device device)
    : first_position_(c.options.first_position) {
  const int64_t width = c.embedding_width();
  const auto table = [&](const char* name, int64_t rows) {
    return trunk.register_module(name, Linear(width, rows, false, device));
  };
  tokens_ = table(kTokens, c.vocab_size);
  if (c.learned_positions()) positions_ = table(kPositions, first_position_ + c.context);
  if (c.options.token_types > 0) types_ = table(kTypes, c.options.token_types);
  if (c.options.embedding_norm)
    norm_ = trunk.register_module("embed_norm", Norm(width, c.norm_kind(), c.options.norm_eps, device));
  if (c.options.embedding_size > 0)
    projection_ =
        trunk.register_module("embed_projection", Linear(width, c.hidden_size(), c.options.embedding_norm, device));
}

Tensor Embedding::operator()(const Tensor& ids, const Positions& at, const Tensor& types) {
  Tensor x = tokens_->rows(ids);
  if (types_) x = x + types_->rows(types.defined() ? types : at::zeros({1}, ids.options()));
  if (!types_ && types.defined()) fail_usage("the model has no token types, want none given");
  if (positions_) x = x + positions_->rows(at.at + first_position_);
  if (norm_) x = norm_(x);
  return projection_ ? projection_->forward(x) : x;
}

std::vector<std::pair<std::string, Linear>> Embedding::tables() const {
  std::vector<std::pair<std::string, Linear>> all;
  for (const auto& [name, table] : {std::pair(kTokens, tokens_), {kPositions, positions_}, {kTypes, types_}})
    if (table) all.emplace_back(kTrunk + name + ".weight", table);
  return all;
}

void Embedding::initialize(const Streams& random, double deviation) {
  for (const auto& [name, table] : tables()) random.normal(name, table->weight, deviation);
}

bool Embedding::is_table(const std::string& name) {
  return name == kTrunk + kTokens + ".weight" || name == kTrunk + kPositions + ".weight" ||
         name == kTrunk + kTypes + ".weight";
}

}  // namespace motet
