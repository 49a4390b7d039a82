#include "fuzz/target.h"
#include "motet/data/manifest.h"
#include "motet/formats/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return motet::fuzzed(data, size, [](std::span<const std::byte> bytes) {
    const auto json = motet::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "f");
    const motet::Manifest manifest = motet::parse_manifest(json, "f");
    if (motet::manifest_json(manifest).size() != json.size()) std::abort();
  });
}
