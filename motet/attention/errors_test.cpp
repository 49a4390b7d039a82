// Each error of the operator once: the message names the argument, what it was and what is wanted.
#include <gtest/gtest.h>

#include "motet/attention/testing.h"

namespace motet {
namespace {

using namespace testing;

struct Wrong {
  std::string message;
  void (*spoil)(Arguments&);
};

Tensor d(std::vector<int64_t> shape) { return at::zeros(shape, at::kDouble); }

const std::vector<Wrong>& wrongs() {
  static const std::vector<Wrong> all{
      {"q has shape [2, 7, 4], want [B,T,H,D]", [](Arguments& a) { a.input[kQ] = d({2, 7, 4}); }},
      {"k and v have batch 3 and 2, want q's batch 2", [](Arguments& a) { a.input[kK] = d({3, 9, 4, 5}); }},
      {"k has head width 6, want q's 5", [](Arguments& a) { a.input[kK] = d({2, 9, 4, 6}); }},
      {"v has 8 keys, want k's 9", [](Arguments& a) { a.input[kV] = d({2, 8, 4, 6}); }},
      {"k has 3 heads and q score heads 4, want a divisor", [](Arguments& a) { a.input[kK] = d({2, 9, 3, 5}); }},
      {"k has dtype Float, want q's dtype Double", [](Arguments& a) { a.input[kK] = a.input[kK].to(at::kFloat); }},
      {"k has dtype Double, want q's dtype Float, bfloat16 or float16",
       [](Arguments& a) { a.input[kQ] = a.input[kQ].to(at::kFloat); }},
      {"pre_query_gate has dtype Half, want q's dtype Float or float32",
       [](Arguments& a) {
         a = arguments({}, {{"query_gate"}}, at::kFloat);
         a.input[kPre + kQueryGate] = a.input[kPre + kQueryGate].to(at::kHalf);
       }},
      {"post_key_gate has dtype Double, want q's dtype Float, bfloat16 or float16",
       [](Arguments& a) {
         a = arguments({}, {{}, {"key_gate"}}, at::kFloat);
         a.input[kPost + kKeyGate] = a.input[kPost + kKeyGate].to(at::kDouble);
       }},
      {"q has dtype Long, want float32", [](Arguments& a) { a.input[kQ] = a.input[kQ].to(at::kLong); }},
      {"pre_weight has dtype Half, want q's dtype Double or float32",
       [](Arguments& a) { a.input[kPre] = d({4, 4}).to(at::kHalf); }},
      {"pre_query_gate has shape [2, 7, 3], want [B=2,T=7,M=4]",
       [](Arguments& a) { a.input[kPre + kQueryGate] = d({2, 7, 3}); }},
      {"post_key_gate has shape [2, 9, 3], want [B=2,S=9,M=4]",
       [](Arguments& a) { a.input[kPost + kKeyGate] = d({2, 9, 3}); }},
      {"pre_weight has shape [4, 3], want [N=4,M=4]",
       [](Arguments& a) { a.input[kPre] = d({4, 3}), a.pre_identity = true; }},
      {"pre_weight has shape [4, 3], want [N=4,M=4]",
       [](Arguments& a) { a.input[kPre] = d({4, 3}), a.input[kPre + kQueryGate] = d({2, 7, 4}); }},
      {"post_query_up has shape [2, 7, 2, 8], want [B=2,T=7,R=2,M=4]",
       [](Arguments& a) {
         a.input[kPost + kQueryDown] = d({2, 7, 2, 4}), a.input[kPost + kQueryUp] = d({2, 7, 2, 8});
         a.input[kPost + kKeyGate] = d({2, 9, 4});
       }},
      {"pre_key_down has rank 0, want at least 1, or the part left out",
       [](Arguments& a) { a.input[kPre + kKeyDown] = d({2, 9, 0, 4}), a.input[kPre + kKeyUp] = d({2, 9, 0, 4}); }},
      {"post_query_down stands without query_up, want both",
       [](Arguments& a) { a.input[kPost + kQueryDown] = d({2, 7, 2, 4}); }},
      {"pre_query_up has shape [2, 7, 3, 4], want [B=2,T=7,R=2,M]",
       [](Arguments& a) { a.input[kPre + kQueryDown] = d({2, 7, 2, 4}), a.input[kPre + kQueryUp] = d({2, 7, 3, 4}); }},
      {"pair_lambda stands beside another part of the post mix",
       [](Arguments& a) { a.input[kLambda] = d({}), a.post_identity = true; }},
      {"pair_lambda needs an even number of softmax heads, have 3",
       [](Arguments& a) { a.input[kLambda] = d({}), a.input[kPre] = d({4, 3}); }},
      {"pair_lambda has shape [4], want [], [2] or [2,7,2]", [](Arguments& a) { a.input[kLambda] = d({4}); }},
      {"window is 3 without causal, want causal attention", [](Arguments& a) { a.window = 3; }},
      {"window is -1, want 0 (none) or more", [](Arguments& a) { a.window = -1, a.causal = true; }},
      {"key_of has 2 entries, want one for each of the 4 q score heads", [](Arguments& a) { a.key_of = {0, 1}; }},
      {"value_of names head 4, want 0 to 3", [](Arguments& a) { a.value_of = {0, 1, 2, 4}; }},
      {"key_end holds 10, want 0 to the 9 keys",
       [](Arguments& a) { a.table[kKeyEnd] = at::tensor({4, 10}, at::kLong); }},
      {"key_begin holds -1, want 0 to the 9 keys",
       [](Arguments& a) { a.table[kKeyBegin] = at::tensor({-1, 0}, at::kLong); }},
      {"query_start has shape [3], want [B=2]", [](Arguments& a) { a.table[kQueryStart] = at::zeros({3}, at::kLong); }},
      {"query_start holds 1152921504606846977, want a position within 2^60",
       [](Arguments& a) { a.table[kQueryStart] = at::tensor({int64_t{0}, (int64_t{1} << 60) + 1}, at::kLong); }},
      {"query_start holds -1152921504606846977, want a position within 2^60",
       [](Arguments& a) { a.table[kQueryStart] = at::tensor({-(int64_t{1} << 60) - 1, int64_t{0}}, at::kLong); }},
      {"scale is nan, want a finite number", [](Arguments& a) { a.scale = std::nan(""); }},
      {"precision is medium, want highest or high", [](Arguments& a) { a.precision = "medium"; }},
      {"key_of names head 4, want 0 to 3", [](Arguments& a) { a.key_of = {0, 1, 2, 4}; }},
      {"documents has dtype Double, want int32 or int64", [](Arguments& a) { a.table[kDocuments] = d({2, 9}); }},
      {"bias has shape [1, 2, 7, 9], want [1 or 2,1 or 4,7,9]", [](Arguments& a) { a.input[kBias] = d({1, 2, 7, 9}); }},
      {"scale is inf, want a finite number", [](Arguments& a) { a.scale = std::numeric_limits<double>::infinity(); }},
      {"k is on meta, want q's device cpu", [](Arguments& a) { a.input[kK] = a.input[kK].to(at::kMeta); }},
  };
  return all;
}

TEST(AttentionErrors, EachNamesTheArgumentAndWhatIsWanted) {
  for (const Wrong& wrong : wrongs()) {
    Arguments a = arguments({}, {});
    wrong.spoil(a);
    try {
      checked_problem(a, "composed_attention");
      ADD_FAILURE() << "accepted, want: " << wrong.message;
    } catch (const c10::Error& e) {
      EXPECT_EQ(std::string(e.what_without_backtrace()).find("composed_attention: "), 0u);
      EXPECT_NE(std::string(e.what_without_backtrace()).find(wrong.message), std::string::npos)
          << e.what_without_backtrace();
    }
  }
}

TEST(AttentionErrors, DeclaredHeadCountsAreChecked) {
  const Problem p = checked_problem(arguments({}, {}), "test");
  EXPECT_THROW(check_heads({.softmax = 5}, p, "composed_attention"), c10::Error);
  const Problem rectangular = checked_problem(arguments({.Ha = 6, .Ho = 2, .Gv = 2}, {{"weight"}, {"weight"}}), "test");
  EXPECT_NO_THROW(check_heads({.scores = 4, .softmax = 6, .outputs = 2}, rectangular, "composed_attention"));
  EXPECT_THROW(check_heads({.outputs = 6}, rectangular, "composed_attention"), c10::Error);
  EXPECT_THROW(check_heads({.scores = 6}, rectangular, "composed_attention"), c10::Error);
  EXPECT_NO_THROW(check_heads({.scores = 4, .softmax = 4, .outputs = 4}, p, "composed_attention"));
}

}  // namespace
}  // namespace motet
