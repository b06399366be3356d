# Cross-compiles for arm64: Debian's compiler, and a folder with its packages of that architecture (tools/sysroot, or
# -DGANTRY_SYSROOT). What runs while it builds is this machine's own: protoc and gRPC's plug-in are of the same release.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)    # packages' CMake files enable C
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# By a link below the source tree: ccache takes its path as a relative one, and finds what another tree compiled.
if(NOT GANTRY_SYSROOT)
  execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../tools/sysroot arm64
    OUTPUT_VARIABLE made OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(GANTRY_SYSROOT ${CMAKE_BINARY_DIR}/sysroot)
  file(CREATE_LINK ${made} ${GANTRY_SYSROOT} SYMBOLIC)
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES GANTRY_SYSROOT)
set(CMAKE_SYSROOT ${GANTRY_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${GANTRY_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${GANTRY_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig:${GANTRY_SYSROOT}/usr/share/pkgconfig)

find_program(GANTRY_QEMU qemu-aarch64-static)
if(GANTRY_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${GANTRY_QEMU} -L ${GANTRY_SYSROOT})    # for tests that are built
endif()
