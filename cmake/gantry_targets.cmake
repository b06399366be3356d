# The functions with which every folder declares its targets.
#
#   gantry_library(<folder-name> [SOURCES ...] [PUBLIC libs...] [PRIVATE libs...])      library gantry_<folder-name>
#   gantry_executable(<name> SOURCES ... LIBS ...)                                      bin/<name>
#   gantry_shared_library(<name> SOURCES ... LIBS ... [VERSION x.y.z] [SOVERSION n])    lib/lib<name>.so
#   gantry_proto(<target> <file.proto> [LIBS other-proto-targets])    generated protobuf and gRPC code as a library
#   gantry_text_source(<output.cc> INPUT <file> HEADER <h> NAMESPACE <n> FUNCTION <f>)    n::f() returns the text of the file
#   gantry_test(<folder-name>_test SOURCES ... LIBS ... [LABELS unit|contract|...] [TIMEOUT seconds] [ENVIRONMENT VAR=value ...]
#               [TOGETHER] [LOOPS] [SERIAL])
#     One program for each folder, and one more where a process of its own is needed: of another label, environment or main.
#     SERIAL: each of its cases runs while no other does. LOOPS: its own loops over many bytes take long, so that it is
#     optimised under a sanitizer, too.
#   gantry_test_on_fake_amd(<name> ROCM 5 6 7 [LABELS ...])    a gantry_test once more for each release, in one process
#   gantry_benchmark(<name> SOURCES ... LIBS ...)                     only with -DGANTRY_BENCH=ON
#   gantry_fuzz_target(<name> SOURCES ... LIBS ... [CORPUS folder])   a fuzzer with -DGANTRY_FUZZ=ON, else a unit test of its corpus
#
# Includes are written from the root of the repository: #include "lib/base/result.h". Generated headers likewise:
# lib/wire/peer.proto becomes "lib/wire/peer.pb.h" and "lib/wire/peer.grpc.pb.h".

function(gantry_set_up_target target)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${GANTRY_WARNINGS})
endfunction()

# Without SOURCES the library is only its arrows (an INTERFACE library), so that others can already link to it.
function(gantry_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;PUBLIC;PRIVATE")
  set(target gantry_${name})
  if(arg_SOURCES)
    add_library(${target} ${GANTRY_LIBRARY_KIND} ${arg_SOURCES})
    gantry_set_up_target(${target})
    target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${arg_PUBLIC})
  endif()
endfunction()

function(gantry_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  add_executable(${name} ${arg_SOURCES})
  gantry_set_up_target(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} Threads::Threads)
endfunction()

function(gantry_shared_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "VERSION;SOVERSION" "SOURCES;LIBS")
  add_library(${name} SHARED ${arg_SOURCES})
  gantry_set_up_target(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} Threads::Threads)
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
  if(NOT GANTRY_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
  if(DEFINED arg_SOVERSION)
    set_target_properties(${name} PROPERTIES VERSION ${arg_VERSION} SOVERSION ${arg_SOVERSION})
  endif()
endfunction()

# Sources that are not in the repository. Each has a target of its own in here, which waits for no library.
add_custom_target(generated)

function(gantry_text_source output)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "INPUT;HEADER;NAMESPACE;FUNCTION" "")
  set(script ${CMAKE_SOURCE_DIR}/cmake/embed_text.cmake)
  cmake_path(GET arg_INPUT FILENAME input_name)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${arg_INPUT} -DOUTPUT=${output} -DHEADER=${arg_HEADER}
            -DNAMESPACE=${arg_NAMESPACE} -DFUNCTION=${arg_FUNCTION} -P ${script}
    DEPENDS ${arg_INPUT} ${script} COMMENT "embed ${input_name}" VERBATIM)
  cmake_path(GET output STEM name)
  add_custom_target(${name}_source DEPENDS ${output})
  add_dependencies(generated ${name}_source)
endfunction()

function(gantry_proto target proto)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "LIBS")
  cmake_path(ABSOLUTE_PATH proto OUTPUT_VARIABLE input)
  cmake_path(RELATIVE_PATH input BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE relative)
  cmake_path(REMOVE_EXTENSION relative LAST_ONLY OUTPUT_VARIABLE stem)
  set(root ${CMAKE_BINARY_DIR}/generated)
  set(base ${root}/${stem})
  set(outputs ${base}.pb.cc ${base}.grpc.pb.cc ${base}.pb.h ${base}.grpc.pb.h)
  file(MAKE_DIRECTORY ${root})
  add_custom_command(OUTPUT ${outputs}
    COMMAND protobuf::protoc --cpp_out=${root} --grpc_out=${root} --plugin=protoc-gen-grpc=${GRPC_PLUGIN}
            -I ${CMAKE_SOURCE_DIR} ${input}
    DEPENDS ${input} COMMENT "protoc ${relative}" VERBATIM)
  add_library(${target} ${GANTRY_LIBRARY_KIND} ${outputs})
  add_custom_target(${target}_headers DEPENDS ${outputs})
  add_dependencies(generated ${target}_headers)
  target_include_directories(${target} SYSTEM PUBLIC ${root})
  target_link_libraries(${target} PUBLIC ${arg_LIBS} gRPC::grpc++ protobuf::libprotobuf)
endfunction()

include(GoogleTest)

# Limits in seconds of the tests of the functions below, three times as long under a sanitizer.
function(gantry_test_limit variable default)
  if(NOT ${variable})
    set(${variable} ${default})
  endif()
  if(GANTRY_SANITIZE)
    math(EXPR ${variable} "3 * ${${variable}}")
  endif()
  set(${variable} ${${variable}} PARENT_SCOPE)
endfunction()

function(gantry_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TOGETHER;LOOPS;SERIAL" "TIMEOUT" "SOURCES;LIBS;LABELS;ENVIRONMENT")
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  gantry_test_limit(arg_TIMEOUT 60)
  gantry_executable(${name} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS} GTest::gmock GTest::gtest_main)
  if(GANTRY_SANITIZE AND NOT arg_LOOPS)
    target_compile_options(${name} PRIVATE -O0)    # half the time to compile; what is tested keeps its -O1
  endif()
  set(properties LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
  if(arg_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${arg_ENVIRONMENT}")
  endif()
  if(arg_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  if(arg_TOGETHER)    # one process for all of them, where it takes longer to start than each of them does
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES ${properties})
    return()
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}." PROPERTIES ${properties})
endfunction()

# The program of a gantry_test with AMD's libraries of these releases, as tests/fakes/hip makes them. Releases before
# the newest have the label older_rocm instead.
set(GANTRY_NEWEST_ROCM 7)
function(gantry_test_on_fake_amd name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;EXCLUDE" "ROCM;LABELS")
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  gantry_test_limit(arg_TIMEOUT 300)
  foreach(major ${arg_ROCM})
    set(labels "${arg_LABELS}")
    if(major LESS GANTRY_NEWEST_ROCM)
      set(labels older_rocm)
    endif()
    add_test(NAME ${name}.rocm${major} COMMAND ${name} "--gtest_filter=-${arg_EXCLUDE}")
    # Whole programs take longest: one that began last would run beside nothing.
    set_tests_properties(${name}.rocm${major} PROPERTIES LABELS "${labels}" TIMEOUT ${arg_TIMEOUT} COST 100
      ENVIRONMENT LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/fake_gpu_amd/rocm${major})
  endforeach()
  add_dependencies(${name} fake_hip)
endfunction()

function(gantry_benchmark name)
  if(NOT GANTRY_BENCH)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  gantry_executable(${name} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS} benchmark::benchmark_main)
endfunction()

# The test "fuzz_<name>" runs for GANTRY_FUZZ_SECONDS (cache variable) from the corpus; findings stay in ${build}/fuzz.
set(GANTRY_FUZZ_SECONDS 60 CACHE STRING "How long each fuzz target runs under ctest")
function(gantry_fuzz_target name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CORPUS" "SOURCES;LIBS")
  if(NOT GANTRY_FUZZ)
    # So that a target which no longer compiles, or fails on an input that is known, is seen at once.
    gantry_executable(${name} SOURCES ${arg_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus_replay.cc LIBS ${arg_LIBS})
    cmake_path(ABSOLUTE_PATH arg_CORPUS OUTPUT_VARIABLE seeds)
    add_test(NAME ${name}.corpus COMMAND ${name} ${seeds})
    set_tests_properties(${name}.corpus PROPERTIES LABELS unit TIMEOUT 60)
    return()
  endif()
  gantry_executable(${name} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)    # what the fuzz tier builds
  endif()
  add_dependencies(fuzzers ${name})
  set(work ${CMAKE_BINARY_DIR}/fuzz/${name})
  file(MAKE_DIRECTORY ${work}/corpus)
  set(seeds)
  if(arg_CORPUS)
    cmake_path(ABSOLUTE_PATH arg_CORPUS OUTPUT_VARIABLE seeds)
  endif()
  add_test(NAME ${name} COMMAND ${name} -max_total_time=${GANTRY_FUZZ_SECONDS} -rss_limit_mb=2048 -timeout=10
    -artifact_prefix=${work}/ ${work}/corpus ${seeds})
  math(EXPR timeout "${GANTRY_FUZZ_SECONDS} + 120")
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT ${timeout})
endfunction()
