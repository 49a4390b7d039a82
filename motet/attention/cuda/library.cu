// What libmotet_cuda.so hands out.
#include "motet/attention/cuda/general.h"

namespace motet::cuda {

const Api& attention() {
  static const Api api{general::why_not, general::workspace_bytes, general::forward, general::backward,
                       general::lse,     general::given_lse};
  return api;
}

}  // namespace motet::cuda

extern "C" __attribute__((visibility("default"))) const motet::cuda::Api* motet_cuda_attention() {
  return &motet::cuda::attention();
}
