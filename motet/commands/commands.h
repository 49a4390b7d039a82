#pragma once
#include <nlohmann/json.hpp>

namespace motet {

// The subcommands: from the request of apps/motet (values are the strings that were typed) to an exit code. Errors are
// thrown; motet.cpp prints them.
int run_compare(const nlohmann::json& request);
int run_train(const nlohmann::json& request);
int run_eval(const nlohmann::json& request);
int run_generate(const nlohmann::json& request);
int run_chat(const nlohmann::json& request);
int run_serve(const nlohmann::json& request);
int run_convert(const nlohmann::json& request);
int run_inspect(const nlohmann::json& request);
int run_doctor(const nlohmann::json& request);
int run_bench(const nlohmann::json& request);
int run_verify(const nlohmann::json& request);
int run_tokenize(const nlohmann::json& request);
int run_data(const nlohmann::json& request);
int run_experiment(const nlohmann::json& request);

}  // namespace motet
