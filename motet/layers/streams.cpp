#include "motet/layers/streams.h"

namespace motet {

// FNV-1a of the name, mixed with the seed (splitmix64): torch's generator looks at 32 bits of its seed alone.
at::Generator Streams::stream(const std::string& name) const {
  uint64_t z = 0xCBF29CE484222325u;
  for (const std::string& part : {prefix_, name})
    for (const char c : part) z = (z ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  z += (seed_ + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return at::detail::createCPUGenerator(z ^ (z >> 31));
}

void Streams::normal(const std::string& name, Tensor to, double deviation) const {
  to.copy_(at::empty(to.sizes(), at::kFloat).normal_(0, deviation, stream(name)));
}

void Streams::uniform(const std::string& name, Tensor to, double bound) const {
  to.copy_(at::empty(to.sizes(), at::kFloat).uniform_(-bound, bound, stream(name)));
}

}  // namespace motet
