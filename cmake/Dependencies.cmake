# Libraries. Debian: libfmt-dev nlohmann-json3-dev libcli11-dev doctest-dev protobuf-compiler libprotobuf-dev.
# onnx-ml.proto comes from the pinned onnx package of PyPI (cmake/Onnx.cmake).
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Protobuf REQUIRED)
include(Onnx)
