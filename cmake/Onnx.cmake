# The messages of ONNX: onnx-ml.proto of a pinned release (third_party/onnx), compiled by protoc.
set(MEMPLAN_ONNX_PROTO "${CMAKE_SOURCE_DIR}/third_party/onnx/onnx-ml.proto" CACHE FILEPATH "onnx-ml.proto to compile")

get_filename_component(_proto_dir "${MEMPLAN_ONNX_PROTO}" DIRECTORY)
set(_gen "${CMAKE_BINARY_DIR}/onnx-proto/onnx")
file(MAKE_DIRECTORY "${_gen}")
add_custom_command(
  OUTPUT "${_gen}/onnx-ml.pb.cc" "${_gen}/onnx-ml.pb.h"
  COMMAND protobuf::protoc "--proto_path=${_proto_dir}" "--cpp_out=${_gen}" "${MEMPLAN_ONNX_PROTO}"
  DEPENDS "${MEMPLAN_ONNX_PROTO}" VERBATIM)
add_library(memplan_onnx STATIC "${_gen}/onnx-ml.pb.cc")
target_include_directories(memplan_onnx SYSTEM PUBLIC "${CMAKE_BINARY_DIR}/onnx-proto")
target_link_libraries(memplan_onnx PUBLIC protobuf::libprotobuf-lite)
