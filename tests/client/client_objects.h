// Objects of the C interface that the tests of it make again and again. Used by one thread.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "client/include/gantry.h"
#include "tests/client/fake_sidecar.h"

namespace gantry::client {

// The code of an error, which is freed; "" for success.
inline std::string CodeOf(gantry_error* error) {
  std::string code = gantry_error_code(error);
  gantry_error_destroy(error);
  return code;
}

#define EXPECT_OK(call) EXPECT_EQ(::gantry::client::CodeOf(call), "")
#define ASSERT_OK(call) ASSERT_EQ(::gantry::client::CodeOf(call), "")

// A client with one arena; the fake sidecar behind them answers everything with success.
struct OpenClient {
  explicit OpenClient(uint64_t timeout_ms = 5000) {
    gantry_client_options options = {};
    options.timeout_ms = timeout_ms;
    EXPECT_OK(gantry_client_open(sidecar.run_dir().c_str(), "w", &options, &client));
    EXPECT_OK(gantry_arena_create(client, 1 << 20, &arena));
  }
  ~OpenClient() {
    gantry_arena_destroy(arena);
    gantry_client_destroy(client);
  }
  OpenClient(const OpenClient&) = delete;
  OpenClient& operator=(const OpenClient&) = delete;

  gantry_error* Register(const char* name, uint64_t offset, uint64_t bytes,
                         gantry_buffer** buffer) {
    const gantry_piece piece = {static_cast<char*>(gantry_arena_data(arena)) + offset, bytes};
    gantry_buffer_spec spec = {};
    spec.name = name;
    spec.pieces = &piece;
    spec.piece_count = 1;
    return gantry_buffers_register(client, &spec, 1, buffer);
  }

  gantry_error* Submit(gantry_buffer* buffer, gantry_transfer** transfer, uint64_t wait_ms = 0) {
    const char* remote = "pod-a/prefill/k.0";
    const gantry_range range = {0, 0, 0, 0, 7};
    gantry_transfer_spec spec = {};
    spec.local = &buffer;
    spec.local_count = 1;
    spec.remote = &remote;
    spec.remote_count = 1;
    spec.ranges = &range;
    spec.range_count = 1;
    return gantry_transfer_submit(client, &spec, wait_ms, transfer);
  }

  FakeSidecar sidecar;
  gantry_client* client = nullptr;
  gantry_arena* arena = nullptr;
};

}  // namespace gantry::client
