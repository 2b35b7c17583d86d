# LibTorch out of an installed torch wheel: targets torch_wheel::torch_cpu and torch_wheel::c10, and MEMPLAN_TORCH_LIB_DIR.
# Only libtorch_cpu and libc10 are linked, so no CUDA toolkit is needed; find_package(Torch) would ask for one. The CUDA
# libraries are opened at run time, where the wheel has any.
execute_process(COMMAND "${MEMPLAN_TORCH_PYTHON}" -c
                "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '', end='')"
                OUTPUT_VARIABLE _torch_root RESULT_VARIABLE _rc)
if(NOT _rc EQUAL 0 OR NOT EXISTS "${_torch_root}/include/torch/script.h")
  message(FATAL_ERROR "MEMPLAN_TORCH_PYTHON=${MEMPLAN_TORCH_PYTHON} has no torch package: ${MEMPLAN_TORCH_PYTHON} -m pip install torch")
endif()
set(MEMPLAN_TORCH_LIB_DIR "${_torch_root}/lib")
# Headers of the CUDA runtime, for the types in the allocator's interface; they are those of the wheels beside torch.
file(GLOB MEMPLAN_CUDA_INCLUDES "${_torch_root}/../nvidia/cu*/include" "${_torch_root}/../nvidia/cuda_runtime/include"
     "${_torch_root}/../triton/backends/nvidia/include")
add_library(torch_wheel::c10 SHARED IMPORTED)
set_target_properties(torch_wheel::c10 PROPERTIES IMPORTED_LOCATION "${MEMPLAN_TORCH_LIB_DIR}/libc10.so")
target_include_directories(torch_wheel::c10 SYSTEM INTERFACE "${_torch_root}/include" "${_torch_root}/include/torch/csrc/api/include")
add_library(torch_wheel::torch_cpu SHARED IMPORTED)
set_target_properties(torch_wheel::torch_cpu PROPERTIES IMPORTED_LOCATION "${MEMPLAN_TORCH_LIB_DIR}/libtorch_cpu.so")
target_link_libraries(torch_wheel::torch_cpu INTERFACE torch_wheel::c10)
