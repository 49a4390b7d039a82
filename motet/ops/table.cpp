#include "motet/ops/table.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "motet/core/environment.h"
#include "motet/core/error.h"
#include "motet/core/log.h"

namespace motet {

// Each is defined beside its rows.
const KernelTable& attention_table();  // attention/dispatch.cpp
const KernelTable& linear_table();     // ops/linear.cpp
const KernelTable& rms_norm_table();   // ops/norms.cpp
const KernelTable& layer_norm_table();
const KernelTable& rotate_table();      // ops/rotate.cpp
const KernelTable& silu_times_table();  // ops/activations.cpp
const KernelTable& gelu_table();
const KernelTable& dcmha_maps_table();  // ops/dcmha_maps.cpp
const KernelTable& token_loss_table();  // ops/token_loss.cpp
const KernelTable& write_rows_table();  // ops/write_rows.cpp
const KernelTable& dropout_table();     // ops/dropout.cpp

const std::vector<KernelTable>& kernel_tables() {
  static const std::vector<KernelTable> all{
      attention_table(), linear_table(),     rms_norm_table(),   layer_norm_table(), rotate_table(), silu_times_table(),
      gelu_table(),      dcmha_maps_table(), token_loss_table(), write_rows_table(), dropout_table()};
  return all;
}

namespace {

struct Named {
  std::string table, row;
};

std::vector<std::string> table_names() {
  std::vector<std::string> names;
  for (const KernelTable& table : kernel_tables()) names.push_back(table.name);
  return names;
}

std::vector<Named> parsed(const std::string& choice) {
  std::vector<Named> all;
  for (size_t begin = 0; begin <= choice.size();) {
    const size_t end = std::min(choice.find(',', begin), choice.size());
    const std::string item = choice.substr(begin, end - begin);
    const size_t equals = item.find('=');
    all.push_back(equals == std::string::npos ? Named{kernel_tables().front().name, item}
                                              : Named{item.substr(0, equals), item.substr(equals + 1)});
    const auto table = std::ranges::find(kernel_tables(), all.back().table, &KernelTable::name);
    if (table == kernel_tables().end())
      throw UsageError("MOTET_KERNEL: " + unknown_name("table", all.back().table, table_names()));
    if (std::ranges::find(table->rows, all.back().row) == table->rows.end())
      throw UsageError("MOTET_KERNEL: " + unknown_name(text("kernel of ", table->name), all.back().row, table->rows));
    begin = end + 1;
  }
  return all;
}

// The environment is read once (core/environment.h).
const std::vector<Named>& named_by_environment() {
  static const std::vector<Named> named = [] {
    const std::string* choice = environment("MOTET_KERNEL");
    try {
      return choice ? parsed(*choice) : std::vector<Named>();
    } catch (const UsageError& error) {
      C10_THROW_ERROR(ValueError, error.what());
    }
  }();
  return named;
}

}  // namespace

bool tells_choices() {
  static const bool tells = [] {
    try {
      return log_level() == LogLevel::debug;
    } catch (const UsageError& error) {
      C10_THROW_ERROR(ValueError, error.what());
    }
  }();
  return tells;
}

void tell_choice(const std::string& table, const std::string& row, const std::string& because) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::string line = text(table, ": ", row, because.empty() ? "" : " (" + because + ")");
  {
    const std::lock_guard lock(mutex);
    if (!told.insert(line).second) return;
  }
  log_debug(line);
}

void check_kernel_choice(const std::string& choice) { parsed(choice); }

std::string named_row(const KernelTable& table, const char* kernel, std::string* said) {
  if (kernel) {
    TORCH_CHECK_VALUE(std::ranges::find(table.rows, kernel) != table.rows.end(), table.name, ": ",
                      unknown_name("kernel", kernel, table.rows));
    *said = text(table.name, ": kernel ", kernel);
    return kernel;
  }
  for (const Named& named : named_by_environment()) {
    if (named.table != table.name) continue;
    *said = text("MOTET_KERNEL=", table.name == kernel_tables().front().name ? "" : table.name + "=", named.row);
    return named.row;
  }
  return "";
}

}  // namespace motet
