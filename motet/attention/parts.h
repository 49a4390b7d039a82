#pragma once
#include <array>
#include <span>
#include <string_view>

#include "motet/attention/attention.h"
#include "motet/attention/plain.h"

// The one table of the operator's tensors: it drives checks, the torch schema, autograd and caching.
namespace motet {

enum class Side { fixed, query, key };

/// A part of a head mix: its name, the side it belongs to and its shape in letters. Key-side parts are cacheable.
struct MixPart {
  std::string_view name;
  Side side;
  std::string_view shape;
};

inline constexpr std::array<MixPart, kNumMixParts> kMixParts{{
    {"weight", Side::fixed, "NM"},
    {"query_down", Side::query, "BTRN"},
    {"query_up", Side::query, "BTRM"},
    {"query_gate", Side::query, "BTM"},
    {"query_full", Side::query, "BTNM"},
    {"key_down", Side::key, "BSRN"},
    {"key_up", Side::key, "BSRM"},
    {"key_gate", Side::key, "BSM"},
    {"key_full", Side::key, "BSNM"},
}};

/// One head mix: the identity flag and its parts in the order of kMixParts; undefined = absent.
struct HeadMix {
  bool identity = false;
  std::array<Tensor, kNumMixParts> part;

  bool has(int which) const { return part[which].defined(); }
  bool any_part() const;
  bool on(Side side) const;  // any part of this side
};

// Tensors with a gradient, in the order of the schema: q, k, v, bias, lambda, the parts of pre, the parts of post.
inline constexpr int kQ = 0, kK = 1, kV = 2, kBias = 3, kLambda = 4, kPre = 5, kPost = kPre + kNumMixParts,
                     kNumInputs = kPost + kNumMixParts;
// Integer tables.
inline constexpr int kQueryStart = 0, kKeyBegin = 1, kKeyEnd = 2, kDocuments = 3, kNumTables = 4;

/// "q", ..., "pre_query_down": the name of input `index` in schemas and messages.
std::string input_name(int index);
std::string_view table_name(int index);

/// The operator's flat arguments, as the torch schema lists them.
struct Arguments {
  std::array<Tensor, kNumInputs> input;
  std::array<Tensor, kNumTables> table;
  bool pre_identity = false, post_identity = false, causal = false;
  std::vector<int64_t> key_of, value_of;  // empty: contiguous groups
  int64_t window = 0;
  std::optional<double> scale;
  std::optional<std::string> precision;  // "highest" or "high"
  std::optional<std::string> kernel;     // a row of the kernel table
};

Arguments flatten(const Queries&, const Keys&, const Attention&);
HeadMix head_mix(const StaticMix&, const QueryMix&, const KeyMix&);

}  // namespace motet
