// Recorded files through our code: what is right passes, every kind of wrong number fails, every gap gets one line.
#include "motet/verify/verify.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"
#include "motet/formats/safetensors.h"
#include "motet/verify/layouts.h"
#include "motet/verify/measure.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;
using testing::TemporaryFolder;

const std::string kGolden = "tests/golden/op/";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A recorded file that can be changed and written again.
struct Copy {
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::pair<TensorView, std::vector<std::byte>>> tensors;

  explicit Copy(const std::string& name) {
    const SafetensorsFile file(kGolden + name);
    metadata = file.metadata();
    for (const TensorView& view : file.tensors()) tensors[view.name] = {view, {view.bytes.begin(), view.bytes.end()}};
  }

  template <class Change>
  Copy& change(const char* key, Change change) {
    json value = parse_json(metadata.at(key), key);
    change(value);
    metadata[key] = value.dump();
    return *this;
  }

  // Adds 0.01 to element 3 of a float32 or float64 tensor, or flips a bool.
  Copy& corrupt(const std::string& name) {
    auto& [view, bytes] = tensors.at(name);
    const auto add = [&](auto number) {
      std::memcpy(&number, bytes.data() + 3 * sizeof number, sizeof number);
      number += 0.01;
      std::memcpy(bytes.data() + 3 * sizeof number, &number, sizeof number);
    };
    if (view.dtype == "F32") add(0.0F);
    if (view.dtype == "F64") add(0.0);
    if (view.dtype == "BOOL") bytes[3] = bytes[3] == std::byte{0} ? std::byte{1} : std::byte{0};
    return *this;
  }

  std::string written(const TemporaryFolder& folder) {
    std::vector<TensorView> views;
    for (auto& [name, tensor] : tensors) {
      views.push_back(tensor.first);
      views.back().name = name;
      views.back().bytes = tensor.second;
    }
    write_safetensors(folder / "file.safetensors", views, metadata);
    return folder / "file.safetensors";
  }
};

std::vector<std::string> failing(Copy copy) {
  const TemporaryFolder folder;
  std::vector<std::string> names;
  for (const Deviation& finding : verify_file(copy.written(folder), {}).failing()) names.push_back(finding.tensor);
  return names;
}

// The complaint about a file, without its path.
std::string complaint(Copy copy) {
  const TemporaryFolder folder;
  const std::string path = copy.written(folder), message = message_of<Error>([&] { verify_file(path, {}); });
  EXPECT_EQ(message.rfind(path + ": ", 0), 0U) << message;
  return message.substr(std::min(message.size(), path.size() + 2));
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

TEST(Verify, EveryRecordedFilePassesInFloat64) {
  const std::vector<std::string> files = golden_files({kGolden});
  ASSERT_EQ(files.size(), 65U);
  for (const std::string& path : files) {
    const FileReport report = verify_file(path, {});
    ASSERT_NE(report.worst(), nullptr) << path;
    EXPECT_FALSE(report.outputs.all.empty()) << path;
    EXPECT_FALSE(report.gradients.all.empty()) << path;
    for (const Deviation& finding : report.failing())
      ADD_FAILURE() << path << ": " << finding.tensor << " differs by " << finding.error;
  }
}

TEST(Verify, NarrowerTypesStayInTheirTolerance) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const char* name : {"dcmha_window", "diff_v1_gqa", "talking_heads_dynamic", "compose_r3",
                             "composed_pairs_token", "rope_partial"}) {
      const FileReport report =
          verify_file(kGolden + name + ".safetensors", {.dtype = type, .tolerance = default_tolerance(type)});
      EXPECT_TRUE(report.passed()) << name << " in " << type << ": " << report.worst()->tensor << " "
                                   << report.worst()->error;
      EXPECT_GT(report.outputs.worst()->error, 1e-9) << name << " was not computed in " << type;
    }
}

TEST(Verify, NamesOfTensorsAndWhereTheyComeFromDoNotMatter) {
  Copy copy("dcmha_static_window.safetensors");
  for (const char* key : {"kind", "class", "source", "commit", "params"}) copy.metadata.erase(key);
  for (const char* name : {"wqkv.weight", "dyn_w_proj.dw1", "rope_cos", "x", "mask_train"})
    for (const std::string prefix : {"", "grad."}) {
      if (!copy.tensors.contains(prefix + name)) continue;
      copy.tensors[prefix + "renamed." + name] = copy.tensors.at(prefix + name);
      copy.tensors.erase(prefix + name);
    }
  for (auto& [key, value] : copy.metadata)
    for (const char* name : {"wqkv.weight", "dyn_w_proj.dw1", "rope_cos", "x", "mask_train"})
      for (const std::string prefix : {"\"", "\"grad."})
        replace_all(value, prefix + name + "\"", prefix + "renamed." + name + "\"");
  copy.change("spec", [](json& spec) { spec["kind"] = "unheard of"; });
  EXPECT_TRUE(failing(copy).empty());
}

TEST(Verify, CorruptedWeightFails) {
  for (const char* name : {"wqkv.weight", "wo.weight", "dyn_w_proj.qkw", "dyn_w_proj.dd", "q_norm.scale", "x"})
    EXPECT_GE(failing(Copy("dcmha_static.safetensors").corrupt(name)).size(), 2U) << name;
}

TEST(Verify, CorruptedResultFailsAlone) {
  for (const char* name :
       {"out", "out_decode", "out_train_mask", "mid.pre_kw1", "grad.dyn_w_proj.dw1", "rope_sin", "mask_train"})
    EXPECT_EQ(failing(Copy("dcmha_window.safetensors").corrupt(name)), std::vector<std::string>{name});
}

TEST(Verify, GradientThatIsZeroMustBeZero) {
  const Copy good("key_size_causal.safetensors");
  EXPECT_EQ(failing(Copy(good).change("zero_grads", [](json& names) { names = {"grad.q_proj.bias"}; })),
            (std::vector<std::string>{"grad.q_proj.bias"}));
}

TEST(Verify, WrongSpecFails) {
  EXPECT_FALSE(failing(Copy("dcmha_window.safetensors").change("spec", [](json& s) { s["window"] = 6; })).empty());
  EXPECT_FALSE(
      failing(Copy("coca_llama_gqa.safetensors").change("spec", [](json& s) { s["form"] = "exact"; })).empty());
  EXPECT_FALSE(failing(Copy("diff_v1_gqa.safetensors").change("spec", [](json& s) { s["key_of"][1] = 0; })).empty());
  EXPECT_FALSE(
      failing(Copy("rope_half.safetensors").change("spec", [](json& s) { s["rope"]["base"] = 9999; })).empty());
}

TEST(Verify, AReleasedWindowHasOneKeyMore) {
  const auto released = [](int64_t less) {
    return failing(Copy("composed_none_window_tail.safetensors").change("spec", [&](json& s) {
      s["window_mask"] = "released", s["window"] = s["window"].get<int64_t>() - less;
    }));
  };
  EXPECT_TRUE(released(1).empty());
  EXPECT_FALSE(released(0).empty());
}

// Leaves out all tensors of these roles.
Copy without(Copy copy, const std::vector<std::string>& roles) {
  return copy.change("roles", [&](json& all) {
    const json before = all;
    for (const auto& [name, role] : before.items()) {
      if (std::find(roles.begin(), roles.end(), role.get<std::string>()) == roles.end()) continue;
      all.erase(name);
      copy.tensors.erase(name);
    }
  });
}

TEST(Verify, FileWithNothingToCompareFails) {
  const char* name = "plain_mha.safetensors";
  EXPECT_EQ(complaint(without(Copy(name), {"grad"})), "grad_of names 'out', but no gradient is recorded");
  Copy empty = without(Copy(name), {"grad", "output", "mid"});
  empty.metadata.erase("grad_of");
  empty.change("spec", [](json& s) {
    s["outputs"] = s["mids"] = json::object();
    s.erase("checks");
  });
  EXPECT_EQ(complaint(empty), "nothing is recorded that could be compared, want an output or a gradient");
}

TEST(Verify, ToleranceOfAVariantIsReported) {
  const TemporaryFolder folder;
  Copy copy("dcmha_static.safetensors");
  const auto of = [&] { return verify_file(copy.written(folder), {}).loosened(VerifyOptions().tolerance); };
  EXPECT_TRUE(of().empty());
  copy.change("variants", [](json& v) { v["out_decode"]["tolerance"] = 0.5; });
  ASSERT_EQ(of().size(), 1U);
  EXPECT_EQ(of()[0].tensor, "out_decode");
  EXPECT_EQ(of()[0].tolerance, 0.5);
}

TEST(Verify, AVariantsToleranceLoosensAndNeverTightens) {
  const auto with = [](double tolerance) {
    return Copy("dcmha_static.safetensors").corrupt("out_decode").change("variants", [&](json& v) {
      v["out_decode"]["tolerance"] = tolerance;
    });
  };
  EXPECT_EQ(failing(with(1e-30)), std::vector<std::string>{"out_decode"});
  EXPECT_TRUE(failing(with(0.5)).empty());
  const TemporaryFolder folder;
  const FileReport report = verify_file(with(1e-30).written(folder), {.dtype = at::kDouble, .tolerance = 0.5});
  EXPECT_TRUE(report.passed());
}

TEST(Verify, DefaultTolerancesAreThoseOfTheReadme) {
  EXPECT_EQ(default_tolerance(at::kDouble), 1e-10);
  EXPECT_EQ(default_tolerance(at::kFloat), 2e-3);
  EXPECT_EQ(default_tolerance(at::kBFloat16), 5e-2);
}

TEST(Reports, TheWorstOfAllGroupsIsFoundAndTheToleranceIsInside) {
  FileReport report;
  EXPECT_EQ(report.worst(), nullptr);
  report.outputs.all = {{"a", 1, 2}, {"b", 3, 3}};
  report.gradients.all = {{"c", 0.5, 0.25}};
  report.masks.all = {{"d", 7, 8}};
  EXPECT_EQ(report.worst()->tensor, "d");
  EXPECT_EQ(report.outputs.worst()->tensor, "b");
  EXPECT_EQ(report.gradients.worst()->tensor, "c");
  ASSERT_EQ(report.failing().size(), 1u);  // an error of the tolerance itself passes
  EXPECT_EQ(report.failing()[0].tensor, "c");
  EXPECT_FALSE(report.passed());
  ASSERT_EQ(report.loosened(3).size(), 1u);
  EXPECT_EQ(report.loosened(3)[0].tensor, "d");
}

TEST(Verify, IdentityOfAMixIsTheMechanismsOwn) {
  const auto identity = [](const char* name, const char* place, bool stated) {
    return complaint(Copy(name).change("spec", [&](json& s) { s["identity"][place] = stated; }));
  };
  EXPECT_EQ(identity("talking_heads_square.safetensors", "post", true),
            "spec.identity.post is 'true', want false: our mechanism has no other");
  EXPECT_EQ(identity("dcmha_global.safetensors", "pre", false),
            "spec.identity.pre is 'false', want true: our mechanism has no other");
  EXPECT_EQ(identity("diff_v1_mha.safetensors", "post", true),
            "spec.identity.post is 'true', want false beside lambda");
}

TEST(Verify, EveryGapGetsOneLineThatNamesIt) {
  const auto spec = [](const char* name, void (*change)(json&)) {
    return complaint(Copy(name).change("spec", change));
  };
  EXPECT_EQ(spec("plain_mha.safetensors", [](json& s) { s["program"] = "operater"; }),
            "unknown spec.program 'operater': nearest is 'operator'; known: operator, layer, head_mix, rope");
  EXPECT_EQ(spec("plain_mha.safetensors", [](json& s) { s["program"] = "model"; }),
            "spec.program is 'model': want the model folder instead of this file");
  EXPECT_EQ(spec("plain_mha.safetensors", [](json& s) { s.erase("scale"); }), "spec.scale is missing");
  EXPECT_EQ(spec("plain_mha.safetensors", [](json& s) { s["scale"] = "1/d"; }),
            "spec.scale is '1/d', want a number or 1/sqrt(d)");
  EXPECT_EQ(spec("coca_exact.safetensors", [](json& s) { s["projections"]["q"].erase("rows"); }),
            "spec.projections.q.rows is missing");
  EXPECT_EQ(spec("coca_exact.safetensors", [](json& s) { s["form"] = nullptr; }), "spec.form is 'null', want a word");
  EXPECT_EQ(spec("coca_exact.safetensors", [](json& s) { s["heads"]["keys"] = "four"; }),
            "spec.heads.keys is 'four', want an integer");
  EXPECT_EQ(spec("coca_exact.safetensors", [](json& s) { s["mids"]["mid.scores"] = "score"; })
                .rfind("unknown quantity 'score': nearest is 'scores'", 0),
            0U);
  EXPECT_EQ(spec("coca_exact.safetensors", [](json& s) { s["mechanism"] = "cocoa"; })
                .rfind("unknown mechanism 'cocoa': nearest is 'coca'", 0),
            0U);
  EXPECT_EQ(spec("dcmha_global.safetensors", [](json& s) { s["mechanism"] = "softmax"; }),
            "mechanism 'softmax' has no option 'gates', which the spec needs");
  EXPECT_EQ(spec("dcmha_global.safetensors", [](json& s) { s["dynamic"]["down_norm"]["eps"] = 1e-5; }),
            "spec.dynamic.down_norm.eps is '1e-05', want 1e-06: our mechanism has no other");
  EXPECT_EQ(spec("dcmha_global.safetensors", [](json& s) { s["dynamic"]["hidden"] = "dw1"; }),
            "tensor 'dw1', named by spec.dynamic.hidden, is missing");
  EXPECT_EQ(spec("dcmha_global.safetensors", [](json& s) { s["outputs"] = json::object(); }),
            "output 'out' is neither in spec.outputs nor in variants");
}

TEST(Verify, DamagedFileGetsOneLine) {
  Copy missing("plain_mha.safetensors");
  missing.tensors.erase("v");
  EXPECT_EQ(complaint(missing), "tensor 'v' with the role 'input' is missing");
  Copy misspelt("plain_mha.safetensors");
  misspelt.change("roles", [](json& all) { all["grad.v"] = "gradient"; });
  EXPECT_EQ(complaint(misspelt),
            "roles.grad.v is 'gradient', want input, weight, bias, table, mask, cotangent, output, mid, grad");
  misspelt.change("roles", [](json& all) { all.erase("grad.v"); });
  EXPECT_EQ(complaint(misspelt),
            "tensor 'grad.v' has no role, want one of input, weight, bias, table, mask, cotangent, output, mid, grad");
  Copy bare("plain_mha.safetensors");
  bare.metadata.erase("spec");
  EXPECT_EQ(complaint(bare), "the metadata has no 'spec', so this is no golden file");
  Copy narrow("coca_exact.safetensors");
  narrow.tensors["q_proj.weight"] = narrow.tensors.at("x");
  EXPECT_EQ(complaint(narrow),
            "tensor 'q_proj.weight' has the shape [2, 20, 48] and the layout 'OI', want a letter for each axis");
}

TEST(Verify, FoldersAreListedModelFoldersAmongThem) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of<Error>([&] { golden_files({folder.path().string()}); }).find("has no *.safetensors"),
            std::string::npos);
  EXPECT_NE(message_of<Error>([&] { golden_files({folder / "absent"}); }).find("no such file"), std::string::npos);
  const std::string model = "tests/golden/model/llama_mha/expected.safetensors";
  EXPECT_EQ(message_of<Error>([&] { verify_file(model, {}); }),
            model + ": spec.program is 'model': want the model folder instead of this file");
  EXPECT_EQ(golden_files({"tests/golden/model/llama_mha"}), std::vector<std::string>{"tests/golden/model/llama_mha"});
  EXPECT_EQ(golden_files({"tests/golden/model"}).size(), 7u);
  const std::vector<std::string> files = golden_files({kGolden});
  EXPECT_TRUE(std::is_sorted(files.begin(), files.end()));
}

TEST(Layouts, AxesArePermutedAddedDroppedAndMatchedByKin) {
  const Tensor t = at::arange(24).view({2, 3, 4});
  EXPECT_TRUE(arranged(t, "BTC", "CBT", "t").equal(t.permute({2, 0, 1})));
  EXPECT_TRUE(arranged(t, "HTS", "BHTS", "t").equal(t.unsqueeze(0)));
  EXPECT_TRUE(arranged(t.unsqueeze(1), "B1TS", "BTS", "t").equal(t));
  EXPECT_TRUE(arranged(t, "BHD", "BGE", "t").equal(t));
  EXPECT_EQ(message_of<Error>([&] { arranged(t, "BTC", "BT", "t"); }),
            "tensor 't' has the shape [2, 3, 4] and the layout 'BTC', which does not fit 'BT'");
}

TEST(Measure, InfinitiesMustSitAtTheSamePlaces) {
  const Tensor want = at::tensor({1.0, -kInfinity, 4.0});
  EXPECT_EQ(output_error(at::tensor({1.0, -kInfinity, 5.0}), want), 0.25);
  EXPECT_EQ(output_error(at::tensor({1.0, kInfinity, 4.0}), want), kInfinity);
  EXPECT_EQ(output_error(at::tensor({1.0, 0.0, 4.0}), want), kInfinity);
  EXPECT_EQ(output_error(at::tensor({-kInfinity, -kInfinity, 4.0}), want), kInfinity);
  EXPECT_EQ(output_error(at::tensor({std::nan(""), -kInfinity, 4.0}), want), kInfinity);
  EXPECT_EQ(output_error(at::tensor({1.0, 4.0}), want), kInfinity);
  EXPECT_EQ(output_error(Tensor(), at::zeros({2})), 0);
  EXPECT_EQ(gradient_error(at::tensor({0.5}), at::tensor({0.0}), 2.0, true), 0.25);    // one that must be zero
  EXPECT_EQ(gradient_error(at::tensor({2e-4}), at::tensor({1e-4}), 1.0, false), 0.1);  // against 1e-3 of the largest
}

}  // namespace
}  // namespace motet
