#include "motet/models/autocast.h"

#include <ATen/autocast_mode.h>

namespace motet {

AutocastScope::AutocastScope(bool on) : begins_(on && !at::autocast::is_autocast_enabled(at::kCPU)) {
  if (!begins_) return;
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
}

AutocastScope::~AutocastScope() {
  if (!begins_) return;
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
}

}  // namespace motet
