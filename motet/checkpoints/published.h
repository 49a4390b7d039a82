#pragma once
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "motet/models/model.h"

// Reading and writing config.json in the words of Hugging Face and of the authors.
namespace motet {

/// An object of config.json. What is read is marked, so that what nobody reads can be said. Every complaint is an Error
/// that begins with the place: "m/config.json: hidden_size is '-3', want 1 to 65536". A null counts as absent.
class Published {
 public:
  Published(const nlohmann::json& object, std::string where);

  bool has(const std::string& key) const;
  int64_t integer(const std::string& key, double min, double max, std::optional<int64_t> otherwise = {});
  double number(const std::string& key, double min, double max, std::optional<double> otherwise = {});
  bool flag(const std::string& key, std::optional<bool> otherwise = {});
  std::string word(const std::string& key, std::optional<std::string> otherwise = {});
  Published object(const std::string& key);

  /// Gives an absent key this value.
  void set_otherwise(const std::string& key, const nlohmann::json& value) {
    if (!has(key)) object_[key] = value;
  }
  /// The key must be absent or have this value: another changes what the model computes, and we do not compute that.
  void want(const std::string& key, const nlohmann::json& value);
  /// The keys say nothing about what the model computes.
  void ignore(const std::vector<std::string>& keys);
  /// Warns of each key that nobody has read and whose value is not null or false.
  void warn_of_the_rest() const;

  [[noreturn]] void refuse(const std::string& key, const std::string& wanted) const;
  const std::string& where() const { return where_; }
  std::string at(const std::string& key) const { return place_ + key; }

 private:
  const nlohmann::json* find(const std::string& key);

  nlohmann::json object_;
  std::string where_, place_;
  std::set<std::string> read_;
};

/// Keys of every model on the Hub that say nothing about the function: token ids, versions, generation.
void ignore_common(Published&);

/// "silu", "gelu" ... -> the option `activation`.
std::string read_activation(Published&, const std::string& key, const std::string& otherwise);
std::string written_activation(const ModelConfig&);

/// How a family spells its rotary embedding.
struct RopeKeys {
  const char* base = "rope_theta";
  const char* fraction = "partial_rotary_factor";
  double fraction_otherwise = 1;
  bool whole = true;  // whole heads rotate, and no other fraction is known
};
/// Adds rope_base, rope_fraction and the scaling to the attention options, from rope_parameters, rope_scaling and the
/// older keys; different values are an Error. Returns the longest input: max_position, stretched by linear, ntk and
/// dynamic scaling.
int64_t read_rope(Published&, const RopeKeys&, int64_t max_position, nlohmann::json& attention);
/// The older spelling; sets max_position_embeddings too. Throws Error for the scaling ntk, which we alone have.
void write_rope(const ModelConfig&, const RopeKeys&, nlohmann::json& out);

/// Throws Error for a rope_fraction that gives an odd number of dimensions: the code of published models turns a pair
/// more then, and all of them by other frequencies. `where` begins the message.
void check_rope_fraction(const ModelConfig&, const std::string& where);

/// A config with everything that is derived written out and everything without effect at its default, so that two are
/// equal when they compute the same from the same tensors.
ModelConfig normal(ModelConfig);

/// The widest head: head_dim, or hidden_size / num_heads.
int64_t head_width(const ModelConfig&);
int64_t kv_heads(const ModelConfig&);

}  // namespace motet
