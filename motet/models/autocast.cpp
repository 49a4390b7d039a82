#include "motet/models/autocast.h"

#include <ATen/autocast_mode.h>

namespace motet {

AutocastScope::AutocastScope(std::optional<at::ScalarType> type, at::DeviceType device)
    : device_(device),
      begins_(type && !at::autocast::is_autocast_enabled(device)),
      cached_(at::autocast::is_autocast_cache_enabled()) {
  if (!begins_) return;
  at::autocast::set_autocast_cache_enabled(false);
  at::autocast::set_autocast_dtype(device_, *type);
  at::autocast::set_autocast_enabled(device_, true);
}

AutocastScope::~AutocastScope() {
  if (!begins_) return;
  at::autocast::set_autocast_enabled(device_, false);
  at::autocast::set_autocast_cache_enabled(cached_);
}

}  // namespace motet
