# libmotet_cuda.so, where there is an nvcc of 12.4 or newer; and the same kernels for the host, which the tests emulate.
# The library needs neither torch nor a GPU to be built and is opened by libmotet_ops.so when something lies on a GPU.
option(MOTET_CUDA "Build the CUDA kernels where nvcc is found" ON)
set(MOTET_CUDA_ARCHITECTURES "80-real;90a-real;80-virtual" CACHE STRING "What the CUDA kernels are compiled for")
if(DEFINED ENV{MOTET_CUDA_ARCHITECTURES})
  set(MOTET_CUDA_ARCHITECTURES $ENV{MOTET_CUDA_ARCHITECTURES})
endif()

motet_sources(cuda cuda attention/cuda kernels/cuda)
if(MOTET_TESTS)
  add_library(motet_cuda_emulated STATIC ${cuda_SOURCES})
  target_link_libraries(motet_cuda_emulated PUBLIC motet_options)
endif()

if(NOT MOTET_CUDA)
  return()
endif()
find_program(MOTET_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT MOTET_NVCC)
  message(STATUS "nvcc not found: the CUDA kernels are not built")
  return()
endif()
set(CMAKE_CUDA_COMPILER ${MOTET_NVCC})
set(CMAKE_CUDA_ARCHITECTURES ${MOTET_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
set(CMAKE_CUDA_STANDARD 17) # what every nvcc and CMake here know
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
  message(STATUS "nvcc is ${CMAKE_CUDA_COMPILER_VERSION}, want 12.4: the CUDA kernels are not built")
  return()
endif()
add_library(motet_cuda SHARED motet/attention/cuda/between.cu motet/attention/cuda/decode.cu
  motet/attention/cuda/general.cu motet/attention/cuda/library.cu motet/kernels/cuda/step.cu)
target_include_directories(motet_cuda PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_options(motet_cuda PRIVATE --expt-relaxed-constexpr -O3 -Xcompiler=-fno-math-errno
  -Xptxas=-warn-spills,-Werror) # a kernel that spills does not compile
set_target_properties(motet_cuda PROPERTIES CUDA_VISIBILITY_PRESET hidden CUDA_RUNTIME_LIBRARY Static)
set(MOTET_CUDA_LIBRARY motet_cuda)
if("90a-real" IN_LIST MOTET_CUDA_ARCHITECTURES)
  add_library(motet_cuda_tensor OBJECT motet/attention/cuda/tensor.cu)
  target_include_directories(motet_cuda_tensor PRIVATE ${PROJECT_SOURCE_DIR})
  # Its roles exchange registers (setmaxnreg), and those that hold O and Q spill a few: docs/kernels.md.
  target_compile_options(motet_cuda_tensor PRIVATE --expt-relaxed-constexpr -O3 --use_fast_math)
  set_target_properties(motet_cuda_tensor PROPERTIES CUDA_ARCHITECTURES 90a-real CUDA_VISIBILITY_PRESET hidden)
  target_sources(motet_cuda PRIVATE $<TARGET_OBJECTS:motet_cuda_tensor>)
  target_compile_definitions(motet_cuda PRIVATE MOTET_CUDA_TENSOR)
endif()
