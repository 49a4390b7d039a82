#include "motet/commands/request.h"

#include <set>
#include <thread>

#include "motet/checkpoints/checkpoint.h"
#include "motet/checkpoints/model_folder.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::message_of;
using testing::TemporaryFolder;

TEST(RunFolder, ASecondRunInOneFolderIsRefusedEvenBeforeTheFirstWroteAnything) {
  const TemporaryFolder folder;
  const json request{{"out", folder / "run"}};
  const RunFolder first(request, "train");
  EXPECT_EQ(first.path(), fs::path(folder / "run"));
  EXPECT_EQ(message_of<UsageError>([&] { RunFolder(request, "train"); }),
            "--out: " + (folder / "run") + " already holds a run, want a new folder");
}

TEST(RunFolder, ARunThatLeftNoRecordCanBeTriedAgain) {
  const TemporaryFolder folder;
  const json request{{"out", folder / "run"}};
  {
    const RunFolder failed(request, "train");
  }
  {
    const RunFolder again(request, "train");
    write_file_atomic(again.path() / "metrics.jsonl", "{}\n");
  }
  message_of<UsageError>([&] { RunFolder(request, "train"); });
}

TEST(RunFolder, RunsThatBeginAtOnceGetFoldersOfTheirOwn) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  std::vector<std::unique_ptr<RunFolder>> made(8);
  std::vector<std::thread> starters;
  for (auto& one : made) starters.emplace_back([&one] { one = std::make_unique<RunFolder>(json::object(), "train"); });
  for (std::thread& t : starters) t.join();
  std::set<fs::path> paths;
  for (const auto& one : made) paths.insert(one->path());
  EXPECT_EQ(paths.size(), made.size());
  made.clear();
  fs::current_path(before);
}

// What is drawn when nothing is said: llama.cpp's values, and no penalties.
TEST(Sampling, DefaultsAreThoseOfTheHelp) {
  EXPECT_EQ(sampling_options().write({}), json::parse(R"({
    "n_predict": 200, "temp": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0, "typical_p": 1.0, "repeat_penalty": 1.0,
    "frequency_penalty": 0, "presence_penalty": 0, "cache_type": "model", "weights": "auto", "precision": "highest", "device": "auto",
    "compact_cache": false,
    "stepwise_base": false, "eager": false, "seed": 0})"));
}

TEST(Sampling, EachValueReachesItsOption) {
  const json given = json::parse(R"({
    "n_predict": "7", "temp": "0.25", "top_k": "3", "top_p": "0.5", "min_p": "0.125", "typical_p": "0.75",
    "repeat_penalty": "1.5", "frequency_penalty": "0.375", "presence_penalty": "-0.625", "cache_type": "int8",
    "weights": "float32", "compact_cache": true, "stepwise_base": false, "seed": "9", "stop": ["a", "b"],
    "ignore_eos": true})");
  json both = given;
  both["compact_cache"] = false, both["stepwise_base"] = true, both["eager"] = true;
  LoadedModel none{.model = nullptr, .tokenizer = std::make_unique<ByteTokenizer>(), .companions = {}};
  none.companions.token_ids = {{"eos_token_id", 5}};
  const GenerateOptions made = generate_options(given, read_request(sampling_options(), given), none);
  EXPECT_EQ(made.max_tokens, 7);
  EXPECT_EQ(made.writer.sampler.temperature, 0.25);
  EXPECT_EQ(made.writer.sampler.top_k, 3);
  EXPECT_EQ(made.writer.sampler.top_p, 0.5);
  EXPECT_EQ(made.writer.sampler.min_p, 0.125);
  EXPECT_EQ(made.writer.sampler.typical_p, 0.75);
  EXPECT_EQ(made.writer.sampler.repeat_penalty, 1.5);
  EXPECT_EQ(made.writer.sampler.frequency_penalty, 0.375);
  EXPECT_EQ(made.writer.sampler.presence_penalty, -0.625);
  EXPECT_EQ(made.writer.sampler.seed, 9u);
  EXPECT_EQ(made.writer.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(made.writer.end_tokens.empty());
  EXPECT_EQ(made.cache.type, parse_cache_type("int8"));
  EXPECT_TRUE(made.cache.compact);
  EXPECT_FALSE(made.cache.stepwise_base);
  EXPECT_TRUE(made.cache.recorded);
  const GenerateOptions other = generate_options(both, read_request(sampling_options(), both), none);
  EXPECT_FALSE(other.cache.compact);
  EXPECT_TRUE(other.cache.stepwise_base);
  EXPECT_FALSE(other.cache.recorded);
  EXPECT_EQ(generate_options(json::object(), read_request(sampling_options(), json::object()), none).writer.end_tokens,
            std::vector<int32_t>{5});
  const json empty{{"stop", {"a", ""}}};
  EXPECT_EQ(message_of<UsageError>([&] { generate_options(empty, read_request(sampling_options(), empty), none); }),
            "--stop: an empty text, want one that can appear");
}

void put_model(const fs::path& folder) {
  fs::create_directories(folder);
  write_file_atomic(folder / "config.json", "{}");
}

fs::path chosen(const fs::path& folder) { return model_folder({{"model", folder.string()}}, "model"); }

TEST(ModelFolder, TheLastCheckpointOfARunIsTheOneOfTheLargestNumber) {
  const TemporaryFolder folder;
  for (const char* step : {"step_00000002", "step_00000004", "step_00000010", "step_00000009"}) {
    put_model(folder.path() / "checkpoints" / step);
  }
  put_model(folder.path() / "checkpoints/step_x99999999");
  put_model(folder.path() / "checkpoints/step_99999999.old");
  put_model(folder.path() / "checkpoints/zzz");
  EXPECT_EQ(chosen(folder.path()), folder.path() / "checkpoints/step_00000010");
  put_model(folder.path() / "checkpoints/step_99999999");
  put_model(folder.path() / "checkpoints/step_100000000");
  EXPECT_EQ(chosen(folder.path()), folder.path() / "checkpoints/step_100000000");
  const fs::path itself = folder.path() / "checkpoints/step_00000002";
  EXPECT_EQ(chosen(itself), itself);
  EXPECT_EQ(chosen(folder.path() / "none"), folder.path() / "none");  // the reader says what is wrong
}

TEST(ModelFolder, AComparisonNamesItsModels) {
  const TemporaryFolder folder;
  put_model(folder.path() / "models/mha-seed2");
  put_model(folder.path() / "models/dcmha-seed1");
  fs::create_directories(folder.path() / "models/empty");
  write_file_atomic(folder.path() / "metrics.jsonl", "{}");
  EXPECT_EQ(message_of<Error>([&] { chosen(folder.path()); }),
            folder.path().string() + ": a comparison, want one of its models: " + (folder / "models/dcmha-seed1") +
                ", " + (folder / "models/mha-seed2"));
  for (int i = 10; i < 30; ++i) put_model(folder.path() / text("models/mha-seed", i));
  const std::string message = message_of<Error>([&] { chosen(folder.path()); });
  EXPECT_TRUE(message.ends_with("mha-seed27 and 2 more")) << message;
}

TEST(ModelFolder, ARunWithoutACheckpointSaysSo) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() / "metrics.jsonl", "");
  const std::string wanted =
      folder.path().string() + ": a run that has no checkpoint yet, want a finished run or a model folder";
  EXPECT_EQ(message_of<Error>([&] { chosen(folder.path()); }), wanted);
  fs::create_directories(folder.path() / "checkpoints");
  EXPECT_EQ(message_of<Error>([&] { chosen(folder.path()); }), wanted);
  EXPECT_EQ(message_of<UsageError>([] { model_folder(json::object(), "model"); }),
            "--model is missing, want a model folder");
}

// On a CPU without AMX always, and on any for another dtype than float32.
TEST(LoadedModel, PrecisionHighIsRefusedWhereItChangesNothing) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "m";
  save_model_folder(path, *testing::fresh(testing::tiny({}, {}, 3)),
                    {{"tokenizer.json", CharTokenizer("abc").to_json().dump()}});
  EvalRequest scored;
  scored.precision = Precision::high, scored.dtype = TrainDtype::bfloat16;
  const auto score = [&] { load_for_scoring(open_checkpoint(path), scored, at::kCPU); };
  const std::string refused = "--precision: high, want highest: ";
  EXPECT_EQ(message_of<UsageError>(score), refused + why_not_high(at::kCPU, at::kBFloat16));
  scored.dtype = TrainDtype::float32;
  SamplingRequest drawn;
  drawn.precision = Precision::high, drawn.device = "cpu";
  const auto load = [&] { return load_for_inference(path, drawn); };
  if (const std::string reason = why_not_high(at::kCPU, at::kFloat); !reason.empty()) {
    EXPECT_EQ(message_of<UsageError>(score), refused + reason);
    EXPECT_EQ(message_of<UsageError>(load), refused + reason);
  } else {
    EXPECT_EQ(load().model->blocks()[0]->self_attn->precision, Precision::high);
  }
  drawn.precision = Precision::highest;
  EXPECT_EQ(load().model->blocks()[0]->self_attn->precision, Precision::highest);
}

TEST(LoadedModel, ACompactCacheIsRefusedWhereKeysHaveNoSmallerForm) {
  const TemporaryFolder folder;
  SamplingRequest compact;
  compact.compact_cache = true, compact.device = "cpu";
  const auto load = [&](const char* mechanism) {
    const fs::path path = folder.path() / mechanism;
    save_model_folder(path, *testing::fresh(testing::tiny({}, {{"mechanism", mechanism}}, 3)),
                      {{"tokenizer.json", CharTokenizer("abc").to_json().dump()}});
    return load_for_inference(path, compact);
  };
  EXPECT_TRUE(load("coca").tokenizer);
  EXPECT_EQ(message_of<UsageError>([&] { load("dcmha"); }),
            "--compact-cache: keys of dcmha have no smaller form, want it left out");
}

TEST(LoadTokenizer, MoreTokensThanTheModelHasAreRefused) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "tokenizer.json", CharTokenizer("abc").to_json().dump());
  for (const int64_t size : {3, 4})  // published models round their vocabulary up
    EXPECT_EQ(load_tokenizer(folder.path(), testing::tiny({}, {}, size))->vocabulary_size(), 3);
  EXPECT_EQ(message_of<Error>([&] { load_tokenizer(folder.path(), testing::tiny({}, {}, 2)); }),
            folder.path().string() + ": the tokenizer has 3 tokens, want at most the 2 of vocab_size in config.json");
}

TEST(LoadTokenizer, OfALlama2cModelItIsTheFileBesideIt) {
  const TemporaryFolder folder;
  const std::string model = folder / "stories.bin";
  write_file_atomic(model, std::string(64, '\x01'));
  const auto load = [&](const std::string& of) { return load_tokenizer(fs::path(of), testing::tiny({}, {}, 300)); };
  EXPECT_EQ(message_of<Error>([&] { load(model); }),
            model + ": a model of llama2.c holds no tokenizer, want its tokenizer.bin there");
  std::string bytes(4, '\0');  // the length of the longest token
  const auto add = [&](const std::string& token) {
    bytes += std::string(4, '\0') + std::string{static_cast<char>(token.size()), 0, 0, 0} + token;
  };
  for (const char* token : {"<unk>", "<s>", "</s>"}) add(token);
  for (int byte = 0; byte < 256; ++byte) {
    char name[7];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    add(name);
  }
  for (const char* token : {" ", "a", "b"}) add(token);
  write_file_atomic(folder / "tokenizer.bin", bytes);
  for (const std::string& of : {model, folder.path().string()})
    EXPECT_EQ(load(of)->encode("ab"), (std::vector<int32_t>{259, 260, 261})) << of;
}

}  // namespace
}  // namespace motet
