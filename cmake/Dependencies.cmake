# Libraries. Debian: libfmt-dev nlohmann-json3-dev libcli11-dev doctest-dev protobuf-compiler libprotobuf-dev
# libzip-dev zlib1g-dev libjs-dygraphs libtomlplusplus-dev pkg-config; libmimalloc-dev and libzstd-dev where there are.
# onnx-ml.proto lies in third_party/onnx.
# MEMPLAN_STATIC, a folder of tools/static-libraries.sh: the program then needs nothing of the machine it runs on.
set(MEMPLAN_STATIC "" CACHE PATH "Folder of static libraries: links memplan without any shared one")
if(MEMPLAN_STATIC)
  list(PREPEND CMAKE_PREFIX_PATH "${MEMPLAN_STATIC}")
  set(ENV{PKG_CONFIG_PATH} "${MEMPLAN_STATIC}/lib/pkgconfig")
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(Protobuf_USE_STATIC_LIBS ON)
  set(ZLIB_USE_STATIC_LIBS ON)
endif()
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Protobuf REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(ZLIB REQUIRED)
pkg_check_modules(LIBZIP REQUIRED IMPORTED_TARGET libzip)
add_library(libzip::zip ALIAS PkgConfig::LIBZIP)
# toml++ serves as headers only, so that the binary needs no further library: one file includes it (cli/gate/config.cpp).
find_path(TOMLPLUSPLUS toml++/toml.h REQUIRED)
# Optional: an estimate of a large model is a third faster with it. Sanitizers bring an allocator of their own.
find_package(mimalloc QUIET)
if(TARGET mimalloc-static AND NOT TARGET mimalloc)
  add_library(mimalloc ALIAS mimalloc-static)
endif()
# Optional: models in .zst files.
find_library(ZSTD zstd)
find_path(ZSTD_HEADERS zstd.h)
include(Onnx)
