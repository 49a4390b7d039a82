#include "motet/serve/refused.h"

#include <nlohmann/json.hpp>

namespace motet {

std::string error_body(int status, const std::string& message, const std::string& field) {
  const char* const type = status == 401   ? "authentication_error"
                           : status == 403 ? "permission_error"
                           : status == 404 ? "not_found_error"
                           : status == 429 ? "rate_limit_error"
                           : status >= 500 ? "server_error"
                                           : "invalid_request_error";
  nlohmann::json error{{"message", message}, {"type", type}, {"param", nullptr}, {"code", status}};
  if (!field.empty()) error["param"] = field;
  return nlohmann::json{{"error", error}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace motet
