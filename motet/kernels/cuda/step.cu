// The kernels of a step beside attention, and what libmotet_cuda.so hands out of them.
#include "motet/kernels/cuda/step.h"

#include "motet/kernels/cuda/dcmha_maps-inl.h"
#include "motet/kernels/cuda/elements-inl.h"
#include "motet/kernels/cuda/linear-inl.h"
#include "motet/kernels/cuda/rms_norm-inl.h"
#include "motet/kernels/cuda/token_loss-inl.h"

namespace motet::cuda {

const StepKernels& step_kernels() {
  static const StepKernels kernels{use_device,
                                   device_why_not,
                                   step::rms_norm,
                                   step::rms_norm_backward,
                                   step::rms_norm_workspace,
                                   step::rotate,
                                   step::silu_times,
                                   step::silu_times_backward,
                                   step::token_loss,
                                   step::token_loss_backward,
                                   step::dcmha_split,
                                   step::dcmha_split_backward,
                                   step::kept_linear};
  return kernels;
}

}  // namespace motet::cuda

extern "C" __attribute__((visibility("default"))) const motet::cuda::StepKernels* motet_cuda_kernels() {
  return &motet::cuda::step_kernels();
}
