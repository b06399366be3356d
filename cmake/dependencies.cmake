# Third parties: all from distribution packages (tools/setup lists them), none vendored, none downloaded.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Protobuf REQUIRED)                # the module; protobuf's own CONFIG does not work on Debian
find_package(gRPC CONFIG REQUIRED)             # shared targets only
find_package(absl REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tl-expected REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(GTest REQUIRED)
find_program(GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)    # no CMake config; its macros change class layout
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(VERBS REQUIRED IMPORTED_TARGET libibverbs)
if(GANTRY_BENCH)
  find_package(benchmark REQUIRED)
endif()
