#pragma once
#include <string>

#include "motet/core/error.h"

namespace motet {

/// A request that is not taken: an HTTP status, one line, and the field that is wrong, if one is.
class Refused : public Error {
 public:
  Refused(int status, const std::string& message, std::string field = "")
      : Error(message), status_(status), field_(std::move(field)) {}
  int status() const { return status_; }
  const std::string& field() const { return field_; }

 private:
  int status_;
  std::string field_;
};

/// {"error": {"message", "type", "param", "code"}}, as OpenAI's clients read it.
std::string error_body(int status, const std::string& message, const std::string& field = "");

}  // namespace motet
