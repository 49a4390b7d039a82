#include "motet/attention/problem.h"

#include <cmath>

namespace motet {
namespace {

template <class... A>
[[noreturn]] void refuse(const std::string& function, const A&... parts) {
  C10_THROW_ERROR(ValueError, c10::str(function, ": ", parts...));
}

// Names a size by its letter; a letter that is still unknown (-1) takes the size it meets first.
struct Letters {
  std::array<int64_t, 128> size;
  Letters() { size.fill(-1); }
  int64_t& operator[](char letter) { return size[static_cast<unsigned char>(letter)]; }
};

// name() is asked for where the shape is wrong alone: decoding checks thousands of tensors for each token.
template <class Name>
void check_shape(const std::string& function, const Name& name, const Tensor& t, std::string_view shape,
                 Letters& letters) {
  bool fits = t.dim() == static_cast<int64_t>(shape.size());
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    int64_t& want = letters[shape[i]];
    if (want < 0) want = t.size(i);
    fits = want == t.size(i);
  }
  if (fits) return;
  std::string wanted;
  for (char c : shape)
    wanted += (wanted.empty() ? "" : ",") + (letters[c] < 0 ? std::string(1, c) : c10::str(c, "=", letters[c]));
  refuse(function, name(), " has shape ", t.sizes(), ", want [", wanted, "]");
}

// Whether a cache holds it, maybe in fewer bits than the model's.
bool is_cached(int input) {
  if (input < kPre) return input == kK || input == kV;
  return plain::by_key((input - kPre) % kNumMixParts);
}

bool is_integer(const Tensor& t) { return t.scalar_type() == at::kLong || t.scalar_type() == at::kInt; }

void check_types(const Arguments& a, const std::string& function) {
  const Tensor& q = a.input[kQ];
  const auto dtype = q.scalar_type();
  if (!at::isFloatingType(dtype) || at::elementSize(dtype) < 2)
    refuse(function, "q has dtype ", dtype, ", want float32, bfloat16, float16 or float64");
  for (int i = 0; i < kNumInputs; ++i) {
    const Tensor& t = a.input[i];
    if (!t.defined()) continue;
    if (t.device() != q.device())
      refuse(function, input_name(i), " is on ", t.device(), ", want q's device ", q.device());
    const at::ScalarType own = t.scalar_type();
    const bool narrow = dtype == at::kFloat && is_cached(i) && (own == at::kBFloat16 || own == at::kHalf),
               wide = i > kV && own == at::kFloat;
    if (own != dtype && !narrow && !wide)
      refuse(function, input_name(i), " has dtype ", own, ", want q's dtype ", dtype,
             dtype == at::kFloat && is_cached(i) ? ", bfloat16 or float16"
             : i > kV                            ? " or float32"
                                                 : "");
  }
  for (int i = 0; i < kNumTables; ++i) {
    const Tensor& t = a.table[i];
    if (!t.defined()) continue;
    if (!is_integer(t)) refuse(function, table_name(i), " has dtype ", t.scalar_type(), ", want int32 or int64");
    if (t.device() != q.device())
      refuse(function, table_name(i), " is on ", t.device(), ", want q's device ", q.device());
  }
}

std::vector<int64_t> checked_table(std::vector<int64_t> given, int64_t heads, int64_t stored,
                                   const std::string& function, const char* names[3]) {
  if (stored == 0) refuse(function, names[1], " has 0 heads, want at least 1");
  if (given.empty()) {
    if (heads % stored)
      refuse(function, names[1], " has ", stored, " heads and ", names[2], " ", heads, ", want a divisor");
    given.reserve(static_cast<size_t>(heads));
    for (int64_t h = 0; h < heads; ++h) given.push_back(h / (heads / stored));
    return given;
  }
  if (static_cast<int64_t>(given.size()) != heads)
    refuse(function, names[0], " has ", given.size(), " entries, want one for each of the ", heads, " ", names[2]);
  for (int64_t g : given)
    if (g < 0 || g >= stored) refuse(function, names[0], " names head ", g, ", want 0 to ", stored - 1);
  return given;
}

void check_lambda(const Problem& p, const std::string& function) {
  const Tensor& l = p.lambda;
  if (p.post.any_part() || p.post.identity)
    refuse(function, "pair_lambda stands beside another part of the post mix, want it alone");
  if (p.softmax_heads % 2)
    refuse(function, "pair_lambda needs an even number of softmax heads, have ", p.softmax_heads);
  const int64_t pairs = p.softmax_heads / 2;
  const bool fits = l.dim() == 0 || (l.dim() == 1 && l.size(0) == pairs) ||
                    (l.dim() == 3 && l.size(0) == p.B && l.size(1) == p.T && l.size(2) == pairs);
  if (!fits)
    refuse(function, "pair_lambda has shape ", l.sizes(), ", want [], [", pairs, "] or [", p.B, ",", p.T, ",", pairs,
           "]");
}

// Positions and windows beyond these are no text's; sums of them stay far from the ends of int64.
constexpr int64_t kFarthest = int64_t{1} << 60;

// On the CPU the values of the tables are checked; reading them on another device would wait for it.
void check_values(const Problem& p, const std::string& function) {
  if (const Tensor& t = p.table[kQueryStart]; t.defined() && t.is_cpu() && t.numel()) {
    const int64_t low = t.min().item<int64_t>(), high = t.max().item<int64_t>();
    if (low < -kFarthest || high > kFarthest)
      refuse(function, table_name(kQueryStart), " holds ", low < -kFarthest ? low : high,
             ", want a position within 2^60");
  }
  for (int i : {kKeyBegin, kKeyEnd}) {
    const Tensor& t = p.table[i];
    if (!t.defined() || !t.is_cpu() || !t.numel()) continue;
    const int64_t low = t.min().item<int64_t>(), high = t.max().item<int64_t>();
    if (low < 0 || high > p.S)
      refuse(function, table_name(i), " holds ", low < 0 ? low : high, ", want 0 to the ", p.S, " keys");
  }
}

void check_visibility(const Problem& p, const std::string& function) {
  if (p.window < 0) refuse(function, "window is ", p.window, ", want 0 (none) or more");
  if (p.window > 0 && !p.causal) refuse(function, "window is ", p.window, " without causal, want causal attention");
  Letters letters;
  letters['B'] = p.B, letters['S'] = p.S;
  for (int i = 0; i < kNumTables; ++i)
    if (p.table[i].defined())
      check_shape(function, [&] { return table_name(i); }, p.table[i], i == kDocuments ? "BS" : "B", letters);
  check_values(p, function);
  const Tensor& bias = p.bias_BHTS;
  if (!bias.defined()) return;
  const bool fits = bias.dim() == 4 && (bias.size(0) == 1 || bias.size(0) == p.B) &&
                    (bias.size(1) == 1 || bias.size(1) == p.softmax_heads) && bias.size(2) == p.T &&
                    bias.size(3) == p.S;
  if (!fits)
    refuse(function, "bias has shape ", bias.sizes(), ", want [1 or ", p.B, ",1 or ", p.softmax_heads, ",", p.T, ",",
           p.S, "]");
}

}  // namespace

Tensor& Problem::input(int index) {
  if (index >= kPost) return post.part[index - kPost];
  if (index >= kPre) return pre.part[index - kPre];
  return *std::array{&q_BTHD, &k_BSGD, &v_BSGE, &bias_BHTS, &lambda}[index];
}

at::ScalarType Problem::accumulate() const { return q_BTHD.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

int64_t checked_mix(const HeadMix& mix, const std::string& function, const char* what, MixSizes sizes) {
  Letters letters;
  letters['B'] = sizes.B, letters['T'] = sizes.T, letters['S'] = sizes.S, letters['N'] = sizes.N;
  // Gates and identity keep the number of heads.
  if (mix.identity || mix.has(kQueryGate) || mix.has(kKeyGate)) letters['M'] = sizes.N;
  for (int i = 0; i < kNumMixParts; ++i) {
    if (!mix.has(i)) continue;
    if (i == kQueryDown || i == kKeyDown) letters['R'] = -1;
    check_shape(
        function, [&] { return c10::str(what, "_", kMixParts[i].name); }, mix.part[i], kMixParts[i].shape, letters);
    if (letters['R'] == 0)
      refuse(function, what, "_", kMixParts[i].name, " has rank 0, want at least 1, or the part left out");
  }
  for (int down : {kQueryDown, kKeyDown})
    if (mix.has(down) != mix.has(down + 1))
      refuse(function, what, "_", kMixParts[mix.has(down) ? down : down + 1].name, " stands without ",
             kMixParts[mix.has(down) ? down + 1 : down].name, ", want both");
  return letters['M'] < 0 ? sizes.N : letters['M'];
}

Problem checked_problem(const Arguments& a, const char* name) {
  const std::string function = name;
  for (int i : {kQ, kK, kV}) {
    if (!a.input[i].defined()) refuse(function, input_name(i), " is missing");
    if (a.input[i].dim() != 4)
      refuse(function, input_name(i), " has shape ", a.input[i].sizes(), ", want ",
             i == kQ   ? "[B,T,H,D]"
             : i == kK ? "[B,S,G,D]"
                       : "[B,S,G,E]");
  }
  check_types(a, function);
  Problem p;
  p.q_BTHD = a.input[kQ], p.k_BSGD = a.input[kK], p.v_BSGE = a.input[kV], p.bias_BHTS = a.input[kBias],
  p.lambda = a.input[kLambda];
  p.B = p.q_BTHD.size(0), p.T = p.q_BTHD.size(1), p.score_heads = p.q_BTHD.size(2), p.D = p.q_BTHD.size(3);
  p.S = p.k_BSGD.size(1), p.E = p.v_BSGE.size(3);
  p.pre.identity = a.pre_identity, p.post.identity = a.post_identity;
  std::copy_n(a.input.begin() + kPre, kNumMixParts, p.pre.part.begin());
  std::copy_n(a.input.begin() + kPost, kNumMixParts, p.post.part.begin());
  p.table = a.table, p.causal = a.causal, p.window = std::min(a.window, kFarthest);

  if (p.k_BSGD.size(0) != p.B || p.v_BSGE.size(0) != p.B)
    refuse(function, "k and v have batch ", p.k_BSGD.size(0), " and ", p.v_BSGE.size(0), ", want q's batch ", p.B);
  if (p.k_BSGD.size(3) != p.D) refuse(function, "k has head width ", p.k_BSGD.size(3), ", want q's ", p.D);
  if (p.v_BSGE.size(1) != p.S) refuse(function, "v has ", p.v_BSGE.size(1), " keys, want k's ", p.S);
  if (p.score_heads == 0 || p.D == 0)
    refuse(function, "q has shape ", p.q_BTHD.sizes(), ", want at least one head and width 1");
  p.softmax_heads = checked_mix(p.pre, function, "pre", {p.B, p.T, p.S, p.score_heads});
  if (p.softmax_heads == 0) refuse(function, "the pre mix leaves 0 heads, want at least 1");
  p.output_heads = checked_mix(p.post, function, "post", {p.B, p.T, p.S, p.softmax_heads});
  if (p.lambda.defined()) {
    check_lambda(p, function);
    p.output_heads = p.softmax_heads / 2;
  }
  if (p.output_heads == 0) refuse(function, "the post mix leaves 0 heads, want at least 1");
  const char* keys[3] = {"key_of", "k", "q score heads"};
  const char* values[3] = {"value_of", "v", "output heads"};
  p.key_of = checked_table(a.key_of, p.score_heads, p.k_BSGD.size(2), function, keys);
  p.value_of = checked_table(a.value_of, p.output_heads, p.v_BSGE.size(2), function, values);
  check_visibility(p, function);
  p.scale = a.scale.value_or(1.0 / std::sqrt(static_cast<double>(p.D)));
  if (!std::isfinite(p.scale)) refuse(function, "scale is ", p.scale, ", want a finite number");
  const std::string precision = a.precision.value_or("highest");
  if (precision != "highest" && precision != "high")
    refuse(function, "precision is ", precision, ", want highest or high");
  p.precision = precision == "high" ? Precision::high : Precision::highest;
  return p;
}

void check_heads(const Heads& declared, const Problem& p, const char* function) {
  const std::pair<int64_t, int64_t> counts[] = {
      {declared.scores, p.score_heads}, {declared.softmax, p.softmax_heads}, {declared.outputs, p.output_heads}};
  const char* names[] = {"scores", "softmax", "outputs"};
  for (int i = 0; i < 3; ++i)
    if (counts[i].first != 0 && counts[i].first != counts[i].second)
      refuse(function, "heads.", names[i], " is ", counts[i].first, " and the tensors say ", counts[i].second,
             ", want the same");
}

ResultShapes result_shapes(const Arguments& a) {
  const auto size = [](const Tensor& t, int64_t i) { return t.sym_size(i); };
  const auto outputs = [&](int first, c10::SymInt heads) {
    for (int part : {kWeight, kQueryUp, kQueryFull, kKeyUp, kKeyFull})
      if (const Tensor& t = a.input[first + part]; t.defined()) return size(t, t.dim() - 1);
    return heads;
  };
  const Tensor& q = a.input[kQ];
  const c10::SymInt softmax = outputs(kPre, size(q, 2));
  const c10::SymInt out = a.input[kLambda].defined() ? softmax / 2 : outputs(kPost, softmax);
  return {{size(q, 0), size(q, 1), out, size(a.input[kV], 3)}, {size(q, 0), softmax, size(q, 1)}};
}

}  // namespace motet
