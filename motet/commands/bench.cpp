#include "motet/commands/commands.h"
#include "motet/core/error.h"
namespace motet {
int run_bench(const nlohmann::json&) { fail_usage("bench: being written"); }
}  // namespace motet
