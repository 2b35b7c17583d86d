# Cross-compiles a static memplan for 64-bit ARM: cmake --preset static-aarch64, after tools/static-libraries.sh FOLDER aarch64.
# Debian: g++-aarch64-linux-gnu. Everything but the compiler and protoc comes from that folder, nothing from this machine.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MEMPLAN_STATIC)
set(CMAKE_FIND_ROOT_PATH "${MEMPLAN_STATIC}" "${MEMPLAN_STATIC}/usr")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} "${MEMPLAN_STATIC}/lib/pkgconfig")
