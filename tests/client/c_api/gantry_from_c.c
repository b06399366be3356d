/* The interface as a C program uses it: compiled as C99, called from gantry_c_api_test.cc. */
#include <string.h>

#include "client/include/gantry.h"
#include "client/include/gantry_memory.h"
#include "client/include/gantry_messages.h"
#include "client/include/gantry_timeline.h"

int gantry_round_trip_in_c(const char* run_dir);

/* Returns 0, or the line that failed. */
#define REQUIRE(condition)             \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (0)

int gantry_round_trip_in_c(const char* run_dir) {
  gantry_client_options options = {0};
  gantry_client* client = NULL;
  gantry_arena* arena = NULL;
  gantry_buffer* buffer = NULL;
  gantry_transfer* transfer = NULL;
  gantry_piece piece;
  gantry_buffer_spec spec = {0};
  gantry_transfer_spec wanted = {0};
  gantry_transfer_status status;
  gantry_timeline* timeline;
  gantry_fence fence;
  gantry_error* error;
  const char* remote = "pod-a/prefill/k.0";
  const uint64_t local_blocks[] = {3, 1};
  const uint64_t remote_blocks[] = {7, 9};
  char* json;

  options.engine_id = "engine";
  REQUIRE(gantry_client_open(run_dir, "w", &options, &client) == NULL);
  REQUIRE(gantry_arena_create(client, 1000000, &arena) == NULL);
  REQUIRE(gantry_arena_bytes(arena) == 1003520);
  memset(gantry_arena_data(arena), 1, 1000000);

  piece.address = (char*)gantry_arena_data(arena) + 100;
  piece.bytes = 40960;
  spec.name = "k.0";
  spec.pieces = &piece;
  spec.piece_count = 1;
  spec.access = GANTRY_REMOTE_READ;
  spec.block_bytes = 4096;
  spec.blocks = 10;
  REQUIRE(gantry_buffers_register(client, &spec, 1, &buffer) == NULL);
  REQUIRE(strcmp(gantry_buffer_name(buffer), "k.0") == 0);
  REQUIRE(gantry_buffer_bytes(buffer) == 40960);
  REQUIRE(gantry_buffer_is_registered(buffer) == 1);

  wanted.operation = GANTRY_READ;
  wanted.local = &buffer;
  wanted.local_count = 1;
  wanted.remote = &remote;
  wanted.remote_count = 1;
  wanted.local_blocks = local_blocks;
  wanted.remote_blocks = remote_blocks;
  wanted.block_count = 2;
  wanted.executor = GANTRY_EXECUTOR_SELF;
  REQUIRE(gantry_timeline_create(client, GANTRY_NO_GPU, &timeline) == NULL);
  REQUIRE(gantry_timeline_signal(timeline, &fence) == NULL);
  REQUIRE(fence.buffer == gantry_timeline_buffer(timeline) && fence.value == 1);
  wanted.fence = &fence;
  REQUIRE(gantry_transfer_submit(client, &wanted, 1000, &transfer) == NULL);
  REQUIRE(gantry_transfer_wait(transfer, GANTRY_FOREVER, &status) == NULL);
  REQUIRE(status.state == GANTRY_SUCCEEDED);
  REQUIRE(strcmp(status.path, "shm") == 0);
  REQUIRE(status.executor == GANTRY_EXECUTOR_SELF);
  json = gantry_transfer_json(transfer);
  REQUIRE(json != NULL && strstr(json, "succeeded") != NULL);
  gantry_free(json);

  piece.address = &piece;
  error = gantry_arena_pin(arena, 0, NULL); /* this process uses no GPU */
  REQUIRE(error != NULL && strcmp(gantry_error_code(error), "path_unavailable") == 0);
  gantry_error_destroy(error);

  error = gantry_buffers_register(client, &spec, 1, &buffer);
  REQUIRE(error != NULL);
  REQUIRE(strcmp(gantry_error_code(error), "not_exportable") == 0);
  REQUIRE(strcmp(gantry_error_field(error), "specs/0/pieces/0") == 0);
  gantry_error_destroy(error);

  REQUIRE(gantry_buffer_unregister(buffer, 100) == NULL);
  REQUIRE(gantry_client_close(client) == NULL);
  gantry_transfer_destroy(transfer);
  gantry_timeline_destroy(timeline);
  gantry_client_destroy(client);
  gantry_arena_destroy(arena);
  gantry_buffer_destroy(buffer);
  return 0;
}
