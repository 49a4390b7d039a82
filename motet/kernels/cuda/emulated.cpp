// The kernels of libmotet_cuda.so once more, for the host: every thread a fiber (motet/cuda/emulation.h).
#include "motet/kernels/cuda/step.cu"  // NOLINT
