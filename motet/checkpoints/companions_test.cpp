#include "motet/checkpoints/companions.h"

#include <gtest/gtest.h>

#include "motet/checkpoints/checkpoint.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;
using testing::TemporaryFolder;

TEST(Companions, IdsAreNumbersOrLists) {
  EXPECT_EQ(
      token_ids_of({{"bos_token_id", 1}, {"eos_token_id", {2, 3}}, {"pad_token_id", nullptr}, {"vocab_size", 4}}, "c"),
      (json{{"bos_token_id", 1}, {"eos_token_id", {2, 3}}}));
  EXPECT_EQ(token_ids_of({{"pad_token_id", 0}}, "c"), (json{{"pad_token_id", 0}}));
  EXPECT_EQ(token_ids_of({}, "c"), json::object());
  for (const json& wrong : {json("2"), json(2.5), json{2, "3"}, json(true), json::object()})
    EXPECT_EQ(message_of<Error>([&] { token_ids_of({{"eos_token_id", wrong}}, "m/config.json"); }),
              "m/config.json: eos_token_id is " + quote(wrong.dump()) + ", want the id of a token or a list of them");
}

TEST(Companions, OfATokenizerAreItsUseAndNotItsTokens) {
  const TemporaryFolder folder;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json",
                           "special_tokens_map.json", "vocab.json", "model.safetensors"})
    write_file_atomic(folder / name, name);
  write_file_atomic(folder / "config.json", R"({"eos_token_id": 5, "model_type": "llama"})");
  for (const std::string& path : {folder.path().string(), folder / "tokenizer.json"}) {
    const Companions made = companions_of_tokenizer(path);
    EXPECT_EQ(made.files, (ExtraFiles{{"tokenizer_config.json", "tokenizer_config.json"},
                                      {"chat_template.jinja", "chat_template.jinja"},
                                      {"generation_config.json", "generation_config.json"},
                                      {"special_tokens_map.json", "special_tokens_map.json"}}));
    EXPECT_EQ(made.token_ids, (json{{"eos_token_id", 5}}));
  }
}

}  // namespace
}  // namespace motet
