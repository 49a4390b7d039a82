// The kernels of libmotet_cuda.so once more, for the host: every thread a fiber (emulation.h).
#define MOTET_CUDA_TENSOR
#include "motet/attention/cuda/between.cu"  // NOLINT
#include "motet/attention/cuda/decode.cu"   // NOLINT
#include "motet/attention/cuda/general.cu"  // NOLINT
#include "motet/attention/cuda/library.cu"  // NOLINT
#include "motet/attention/cuda/tensor.cu"   // NOLINT
