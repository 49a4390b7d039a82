#include "motet/report/metrics.h"

#include <cerrno>
#include <cstring>

#include "motet/core/error.h"

namespace motet {

MetricsWriter::MetricsWriter(const std::filesystem::path& path)
    : path_(path.string()), file_(std::fopen(path.c_str(), "ae"), &std::fclose) {
  if (!file_) fail("cannot write ", quote(path_), ": ", std::strerror(errno));
}

void MetricsWriter::write(const nlohmann::json& record) {
  const std::string line = record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size();
  if (!written || std::fflush(file_.get()) != 0) fail("cannot write ", quote(path_), ": ", std::strerror(errno));
}

}  // namespace motet
