#include "motet/core/error.h"
#include "motet/verify/arguments.h"

namespace motet {
namespace {

void check_size(const Spec& spec, const char* key, int64_t have, const char* of) {
  if (const Spec want = spec[key]; want.integer() != have) want.refuse(text(have, ", as ", of, " has"));
}

}  // namespace

Evaluation run_operator(const GoldenFile& file, const Spec& spec, const Quantities& wanted) {
  const Spec identity = spec["identity"];
  const HeadMix pre = read_mix(file, spec["pre"], identity["pre"].flag()),
                post = read_mix(file, spec["post"], identity["post"].flag());
  Queries queries{file.input("q", "BTHD"), query_side(pre), query_side(post), {}};
  const Keys keys{file.input("k", "BSGD"), file.input("v", "BSGE"), key_side(pre), key_side(post)};
  if (const Spec lambda = spec["lambda"]; !lambda.null()) {
    const std::string own = file.layout(lambda.word(), "");
    queries.lambda = file.input(lambda, own.empty() ? "" : own.find('T') == std::string::npos ? "H" : "BTH");
  }
  check_size(spec, "head_dim", queries.q_BTHD.size(3), "q");
  check_size(spec, "value_dim", keys.v_BSGE.size(3), "v");
  check_size(spec["heads"], "keys", keys.k_BSGD.size(2), "k");
  check_size(spec["heads"], "values", keys.v_BSGE.size(2), "v");

  Attention attention;
  attention.heads = read_heads(spec);
  attention.pre = {pre.identity, pre.part[kWeight]};
  attention.post = {post.identity, post.part[kWeight]};
  attention.scale = read_scale(spec);
  read_window(spec, attention.visibility);
  read_tables(file, spec, {queries.q_BTHD.size(0), queries.q_BTHD.size(1), keys.k_BSGD.size(1)}, attention.visibility);

  Evaluation done;
  add_quantities(file, spec, {queries, keys, attention}, wanted, done);
  const Attended attended = composed_attention(queries, keys, attention);
  done.quantities["out"] = {attended.out_BTHE, "BTHE"};
  done.quantities["lse"] = {attended.lse_BHT, "BHT"};
  return done;
}

Evaluation run_head_mix(const GoldenFile& file, const Spec& spec, const Quantities&) {
  const HeadMix mix = read_mix(file, spec["mix"], spec["identity"].flag());
  const Tensor in_BHTS = file.input(spec["input"], "BHTS");
  const Tensor out = apply_head_mix(in_BHTS, {mix.identity, mix.part[kWeight]}, query_side(mix), key_side(mix));
  check_size(spec["heads"], "inputs", in_BHTS.size(1), "the input");
  check_size(spec["heads"], "outputs", out.size(1), "the result");
  Evaluation done;
  done.quantities["out"] = {out, "BHTS"};
  return done;
}

}  // namespace motet
