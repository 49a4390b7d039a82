#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace motet {

inline constexpr size_t kMostKeyBytes = 256;

/// The keys of clients. None: everybody is let in.
class ApiKeys {
 public:
  /// Throws UsageError for a key of more than 256 bytes, an empty one and one with spaces.
  explicit ApiKeys(std::vector<std::string> keys);
  /// The keys of a file: one a line, without empty lines and what follows a #. Throws Error where there is none, and
  /// UsageError with the line of a wrong one.
  static std::vector<std::string> of_file(const std::string& path);

  bool empty() const { return keys_.empty(); }
  /// Whose the value of an Authorization header is: the number of the key, "" when there are none; nothing for a wrong
  /// one. It takes as long whatever the value is: each key is compared whole, at one length.
  std::optional<std::string> owner(std::optional<std::string_view> authorization) const;

 private:
  std::vector<std::string> keys_;  // of kMostKeyBytes each, zeros behind
};

}  // namespace motet
