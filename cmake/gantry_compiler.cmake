# Language level, warnings, sanitizers, output folders and the compiler cache: what holds for every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Libraries are inside of the programs that are installed. Sanitized, they are shared: inside, they take gigabytes.
option(GANTRY_SHARED_LIBRARIES "Link programs and tests against shared libraries of the build folder")
if(GANTRY_SHARED_LIBRARIES)
  set(GANTRY_LIBRARY_KIND SHARED)
else()
  set(GANTRY_LIBRARY_KIND STATIC)
  set(CMAKE_CXX_VISIBILITY_PRESET hidden)    # libgantry.so exports its C interface and nothing else
  set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG -D_FORTIFY_SOURCE=2 -fstack-protector-strong")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1 -D_GLIBCXX_ASSERTIONS")
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -D_GLIBCXX_ASSERTIONS -fno-omit-frame-pointer")    # asan, tsan, fuzz

add_link_options(-Wl,-z,relro,-z,now)

# Forty test programs are linked against gRPC: mold takes a fraction of the time that GNU ld takes.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=mold GANTRY_HAS_MOLD)
if(GANTRY_HAS_MOLD)
  # Where the code happens to end within some bytes of a page, mold 1.10 has the part that is read-only after relocation
  # begin on a page that is not there, and the program does not start. With segments on pages of their own it cannot.
  add_link_options(-fuse-ld=mold -Wl,-z,separate-loadable-segments)
endif()

# Every preset but dev joins the sources of a target. A header is then read once for a batch.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16 CACHE STRING "Sources in one translation unit, with -DCMAKE_UNITY_BUILD=ON")

# Warnings are given to our targets only (gantry_targets.cmake); generated code gets none.
set(GANTRY_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
    -Woverloaded-virtual -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  list(APPEND GANTRY_WARNINGS -Wthread-safety)
endif()

if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # It takes a source that is included for a header, in which a member of a local type would be a fault.
  list(APPEND GANTRY_WARNINGS -Wno-subobject-linkage)
endif()

# Nothing is compiled: an object or a program that was looked at is an empty file, so that only what changed is looked at.
option(GANTRY_ANALYSIS "Check every source with clang's thread-safety analysis, and make no programs" OFF)
if(GANTRY_ANALYSIS)
  set(CMAKE_CXX_COMPILE_OBJECT "<CMAKE_CXX_COMPILER> <DEFINES> <INCLUDES> <FLAGS> -fsyntax-only <SOURCE>" "touch <OBJECT>")
  set(CMAKE_C_COMPILE_OBJECT "touch <OBJECT>")
  foreach(language C CXX)
    set(CMAKE_${language}_LINK_EXECUTABLE "touch <TARGET>")
    set(CMAKE_${language}_CREATE_STATIC_LIBRARY "touch <TARGET>")
    set(CMAKE_${language}_CREATE_SHARED_LIBRARY "touch <TARGET>")
  endforeach()
endif()

if(GANTRY_SANITIZE)
  add_compile_options(-fsanitize=${GANTRY_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${GANTRY_SANITIZE})
endif()

# The cache is shared by all build folders: paths below the source tree are hashed as relative ones.
# The wrapper is itself called "ccache", so that clang-tidy strips it from compile_commands.json.
find_program(GANTRY_CCACHE ccache)
if(GANTRY_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher ${CMAKE_BINARY_DIR}/launcher/ccache)
  file(CONFIGURE OUTPUT ${launcher} CONTENT [[#!/bin/sh
CCACHE_BASEDIR='@CMAKE_SOURCE_DIR@' CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros \
exec '@GANTRY_CCACHE@' "$@"
]] @ONLY)
  file(CHMOD ${launcher} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()
