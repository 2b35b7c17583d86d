# The messages of ONNX: onnx-ml.proto of a pinned release, compiled by protoc.
set(MEMPLAN_ONNX_VERSION "1.22.0" CACHE STRING "Release of the onnx package whose onnx-ml.proto is used")
set(MEMPLAN_ONNX_PROTO "" CACHE FILEPATH "onnx-ml.proto to use instead of downloading the package")

set(_onnx_dir "${CMAKE_BINARY_DIR}/onnx-${MEMPLAN_ONNX_VERSION}")
if(NOT MEMPLAN_ONNX_PROTO)
  set(_proto "${_onnx_dir}/onnx/onnx-ml.proto")
  if(NOT EXISTS "${_proto}")
    find_program(MEMPLAN_PYTHON NAMES python3 REQUIRED)
    file(MAKE_DIRECTORY "${_onnx_dir}")
    execute_process(
      COMMAND "${MEMPLAN_PYTHON}" -m pip download --quiet --no-deps --only-binary=:all: --dest "${_onnx_dir}" "onnx==${MEMPLAN_ONNX_VERSION}"
      RESULT_VARIABLE _rc ERROR_VARIABLE _err)
    file(GLOB _wheel "${_onnx_dir}/onnx-*.whl")
    if(NOT _rc EQUAL 0 OR NOT _wheel)
      message(FATAL_ERROR "could not get onnx ${MEMPLAN_ONNX_VERSION} from PyPI:\n${_err}\n"
        "Pass -DMEMPLAN_ONNX_PROTO=/path/to/onnx-ml.proto to build without network.")
    endif()
    execute_process(COMMAND "${CMAKE_COMMAND}" -E tar xf "${_wheel}" "onnx/onnx-ml.proto" WORKING_DIRECTORY "${_onnx_dir}")
    file(REMOVE ${_wheel})
  endif()
  set(MEMPLAN_ONNX_PROTO_FILE "${_proto}")
else()
  set(MEMPLAN_ONNX_PROTO_FILE "${MEMPLAN_ONNX_PROTO}")
endif()

get_filename_component(_proto_dir "${MEMPLAN_ONNX_PROTO_FILE}" DIRECTORY)
set(_gen "${CMAKE_BINARY_DIR}/onnx-proto/onnx")
file(MAKE_DIRECTORY "${_gen}")
add_custom_command(
  OUTPUT "${_gen}/onnx-ml.pb.cc" "${_gen}/onnx-ml.pb.h"
  COMMAND protobuf::protoc "--proto_path=${_proto_dir}" "--cpp_out=${_gen}" "${MEMPLAN_ONNX_PROTO_FILE}"
  DEPENDS "${MEMPLAN_ONNX_PROTO_FILE}" VERBATIM)
add_library(memplan_onnx STATIC "${_gen}/onnx-ml.pb.cc")
target_include_directories(memplan_onnx SYSTEM PUBLIC "${CMAKE_BINARY_DIR}/onnx-proto")
target_link_libraries(memplan_onnx PUBLIC protobuf::libprotobuf-lite)
