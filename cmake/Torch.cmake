# LibTorch of an installed PyTorch (found without importing it) or of MOTET_TORCH_DIR, linked by path: neither
# find_package(Torch) nor a CUDA toolkit is needed, also when the PyTorch is a CUDA build.
if(DEFINED ENV{MOTET_TORCH_DIR} AND NOT MOTET_TORCH_DIR)
  set(MOTET_TORCH_DIR $ENV{MOTET_TORCH_DIR})
endif()
if(NOT MOTET_TORCH_DIR)
  set(python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  if(MOTET_PYTHON AND Python_EXECUTABLE) # the Python that installs the package
    set(python ${Python_EXECUTABLE})
  elseif(NOT EXISTS ${python})
    set(python python3)
  endif()
  execute_process(
    COMMAND ${python} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE MOTET_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
set(MOTET_TORCH_DIR "${MOTET_TORCH_DIR}" CACHE PATH "The torch package of a PyTorch, or an unpacked LibTorch")
if(NOT EXISTS "${MOTET_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "MOTET_TORCH_DIR is '${MOTET_TORCH_DIR}', want a folder with lib/libtorch_cpu.so "
                      "(scripts/bootstrap installs PyTorch into .venv)")
endif()

add_library(motet_torch INTERFACE)
target_include_directories(motet_torch SYSTEM INTERFACE
  ${MOTET_TORCH_DIR}/include ${MOTET_TORCH_DIR}/include/torch/csrc/api/include)
target_link_libraries(motet_torch INTERFACE motet_options
  -Wl,--no-as-needed ${MOTET_TORCH_DIR}/lib/libtorch_cpu.so ${MOTET_TORCH_DIR}/lib/libc10.so)
if(EXISTS ${MOTET_TORCH_DIR}/lib/libtorch_cuda.so) # loaded for its side effect: the CUDA backend registers itself
  target_link_libraries(motet_torch INTERFACE ${MOTET_TORCH_DIR}/lib/libtorch_cuda.so ${MOTET_TORCH_DIR}/lib/libc10_cuda.so)
endif()
# CUDA's and NCCL's headers, as PyTorch's CUDA builds bring them (nvidia/nccl or nvidia/cu13 beside them), or the system's.
if(EXISTS ${MOTET_TORCH_DIR}/lib/libtorch_cuda.so)
  file(GLOB nvidia_FOLDERS ${MOTET_TORCH_DIR}/../nvidia/*/include)
  find_path(MOTET_NCCL_INCLUDE nccl.h HINTS ${nvidia_FOLDERS} /usr/local/cuda/include)
  # Of those wheels none has all that PyTorch's headers include, and neither has a toolkit of nvcc alone.
  find_path(MOTET_CUDA_INCLUDE crt/host_config.h HINTS /usr/local/cuda/include ${nvidia_FOLDERS})
  find_path(MOTET_CUSPARSE_INCLUDE cusparse.h HINTS /usr/local/cuda/include ${nvidia_FOLDERS})
endif()
target_link_libraries(motet_torch INTERFACE ${MOTET_TORCH_DIR}/lib/libtorch.so -Wl,--as-needed)
target_link_options(motet_torch INTERFACE -Wl,--allow-shlib-undefined -Wl,-rpath,${MOTET_TORCH_DIR}/lib)
set(CMAKE_BUILD_RPATH ${MOTET_TORCH_DIR}/lib ${CMAKE_BINARY_DIR})
set(CMAKE_INSTALL_RPATH "$ORIGIN" "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" ${MOTET_TORCH_DIR}/lib)
