/* The Gantry client: registers the memory of this process with the Gantry sidecar of its pod and
   moves blocks of it to and from other pods. This header, gantry_messages.h, gantry_memory.h and
   gantry_timeline.h are the whole public interface of libgantry.so.

   Conventions:

   (1) Objects are opaque pointers. Each is freed by its own gantry_*_destroy, which accepts NULL.
       Objects may be destroyed in any order: each keeps what it needs, and what is still registered
       is unregistered before its memory goes. All that end wait once for a sidecar that is silent.

   (2) A function that can fail returns a gantry_error*: NULL is success, anything else belongs to
       the caller, who frees it with gantry_error_destroy. Results are written through the last
       pointers, and only on success. Nothing else reports: the library prints nothing, calls no
       abort or exit, throws nothing, raises no signal (SIGPIPE included), reads no environment.

   (3) Strings are UTF-8, end in NUL and are copied when they come in. A `const char*` that comes
       out lives as long as the object it came from and does not change; a `char*` that comes out
       belongs to the caller, who frees it with gantry_free.

   (4) Threads: every function may be called from every thread at any time, also for the same
       object; only *_destroy needs that nobody else uses, or will use, that object. A blocked call
       of another thread ends with an error when gantry_client_close is called. The library keeps
       no thread; gantry_memfd_create and gantry_arena_create use a few and end them before they
       return.

   (5) Processes: an object belongs to the process that made it. In a child made by fork every
       function fails with "permission_denied" and *_destroy does nothing, so that a child neither
       disturbs nor ends its parent's lease. A child opens a client of its own.

   (6) Units: `bytes` and `offset` are bytes, `_ms` milliseconds, `_us` microseconds. A wait of 0
       asks and returns at once. GANTRY_FOREVER waits without a limit of its own.

   (7) Versions: within one major version functions and structs are only added, never changed.
       Structs are to be zeroed before they are filled: 0 is the default of every member. */

#ifndef GANTRY_H_
#define GANTRY_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define GANTRY_BEGIN_C extern "C" {
#define GANTRY_END_C }
#else
#define GANTRY_BEGIN_C
#define GANTRY_END_C
#endif

#define GANTRY_VERSION "0.1.0"
#define GANTRY_EXPORT __attribute__((visibility("default")))
#define GANTRY_FALLIBLE GANTRY_EXPORT __attribute__((warn_unused_result))
#define GANTRY_FOREVER UINT64_MAX
GANTRY_BEGIN_C
typedef struct gantry_error gantry_error;
typedef struct gantry_client gantry_client;
typedef struct gantry_arena gantry_arena;
typedef struct gantry_buffer gantry_buffer;
typedef struct gantry_view gantry_view;
typedef struct gantry_transfer gantry_transfer;
typedef struct gantry_message gantry_message; /* gantry_messages.h */

/* The version of the library that is loaded, for example "0.1.0". */
GANTRY_EXPORT const char* gantry_version(void);
/* Names of the paths that this library knows, for example "shm", in the order in which transfers
   try them; NULL from the first index on that has none. `paths` of GET /v1/info says which of them
   the sidecar has. */
GANTRY_EXPORT const char* gantry_path_name(size_t index);
/* Frees a `char*` that this library returned. */
GANTRY_EXPORT void gantry_free(char* text);

/* ---- Errors: the same as the problem details of the REST interface ---- */

/* A stable name in snake_case, for example "not_exportable"; docs/connectors.md lists them. */
GANTRY_EXPORT const char* gantry_error_code(const gantry_error* error);
/* What happened, to what, and why. */
GANTRY_EXPORT const char* gantry_error_message(const gantry_error* error);
/* What to do about it; may be "". */
GANTRY_EXPORT const char* gantry_error_hint(const gantry_error* error);
/* The argument or, as a JSON pointer, the field of the request that is wrong; may be "". */
GANTRY_EXPORT const char* gantry_error_field(const gantry_error* error);
GANTRY_EXPORT void gantry_error_destroy(gantry_error* error);

/* ---- Client: this process as a workload of the sidecar ---- */

typedef struct gantry_client_options {
  const char* engine_id;      /* the inference engine's own id, shown to operators */
  const char* handoff_socket; /* NULL: handoff.sock beside the API socket */
  uint64_t timeout_ms;        /* of one request, on top of any wait, a day at most; 0: 10 000 */
} gantry_client_options;

/* Registers `workload` at the sidecar that `path` names: its run directory, or its API socket. The
   workload lives until the client is closed or destroyed or this process ends; then the sidecar
   drops all of its buffers. `options` may be NULL. */
GANTRY_FALLIBLE gantry_error* gantry_client_open(const char* path, const char* workload,
                                                 const gantry_client_options* options,
                                                 gantry_client** client);

/* Ends the lease: buffers are unregistered, transfers cancelled, blocked calls return. The objects
   stay valid and answer "cancelled" from here on. Closing twice is no error. */
GANTRY_FALLIBLE gantry_error* gantry_client_close(gantry_client* client);
/* The same, waiting up to `timeout_ms`. 0 asks nothing: the sidecar sees the hand-off socket end.
 */
GANTRY_FALLIBLE gantry_error* gantry_client_close_within(gantry_client* client,
                                                         uint64_t timeout_ms);
GANTRY_EXPORT void gantry_client_destroy(gantry_client* client);
/* Asks over the hand-off socket whether the lease still stands. */
GANTRY_FALLIBLE gantry_error* gantry_client_check(gantry_client* client);
GANTRY_EXPORT const char* gantry_client_workload(const gantry_client* client);
/* The generation of this registration, 16 hex digits. */
GANTRY_EXPORT const char* gantry_client_generation(const gantry_client* client);

/* One request of the REST interface in the name of this workload, for what has no function of its
   own: method "GET", "PUT", "POST", "PATCH" or "DELETE", target for example "/v1/peers", body JSON
   or NULL. `wait_ms` is what the request itself asks the sidecar to wait. The answer of a
   successful request is JSON, or "" when it has no body; any other answer is an error. */
GANTRY_FALLIBLE gantry_error* gantry_client_request(gantry_client* client, const char* method,
                                                    const char* target, const char* body,
                                                    uint64_t wait_ms, char** answer);

/* ---- Arenas: memory that a sidecar can map ---- */

/* A memfd of `bytes` (rounded up to whole pages), named for /proc/PID/maps, sealed against
   resizing and with every page present, so that no copy takes a page fault; for callers who map it
   themselves and adopt it. The descriptor belongs to the caller and is close-on-exec. Fails with
   "resource_exhausted" when the machine, or a control group (cgroup) above this process, has less
   memory left. Page cache counts as free there, swap does not, and memory.high is a limit. */
GANTRY_FALLIBLE gantry_error* gantry_memfd_create(const char* name, uint64_t bytes, int* fd);

/* A memfd like that, mapped readable and writable and handed over to the sidecar. */
GANTRY_FALLIBLE gantry_error* gantry_arena_create(gantry_client* client, uint64_t bytes,
                                                  gantry_arena** arena);

/* Makes the caller's own shared memory an arena: the first `bytes` of `fd`, a memfd sealed with
   F_SEAL_SHRINK, or with --unsealed-memory of the sidecar any file of tmpfs. `address` is where the
   caller mapped its byte 0 and keeps it mapped until the arena is closed, or NULL to have it mapped
   here. "invalid_argument": it begins in no page, or less than `bytes` is mapped there; that it
   shows `fd` is the caller's word, which gantry_buffers_register_verified finds wrong. The library
   duplicates `fd`. Other errors are "fd_not_sealed", "fd_too_short" and "not_exportable". A
   read-only `fd` can be adopted; remote writes to its buffers are refused with "fd_read_only". */
GANTRY_FALLIBLE gantry_error* gantry_arena_adopt(gantry_client* client, int fd, uint64_t bytes,
                                                 void* address, gantry_arena** arena);

GANTRY_EXPORT void* gantry_arena_data(const gantry_arena* arena);
GANTRY_EXPORT uint64_t gantry_arena_bytes(const gantry_arena* arena);
/* The descriptor, which stays the arena's. */
GANTRY_EXPORT int gantry_arena_fd(const gantry_arena* arena);

/* Unregisters every buffer that touches the arena, waiting up to `drain_ms` for each to fall idle,
   and takes the descriptor back from the sidecar. The memory stays mapped until the arena is
   destroyed. Goes on past failures and returns the first. */
GANTRY_FALLIBLE gantry_error* gantry_arena_close(gantry_arena* arena, uint64_t drain_ms);
/* Closes if that was not done, then unmaps what the library mapped. */
GANTRY_EXPORT void gantry_arena_destroy(gantry_arena* arena);

/* ---- Buffers: ranges of arenas and of a GPU's memory that transfers may name ---- */

/* `bytes` from `address`: in arenas, also from one into the next where they are mapped side by
   side; or at a device address of this process, over memory of cudaMalloc or hipMalloc or virtual
   memory made with POSIX file descriptors (PyTorch's expandable segments), which stays allocated
   until the buffer is unregistered. Anything else is "not_exportable"; the message says what it is.
   A transfer that names what was freed, or allocated again, is refused with "stale_generation".
   No stream is synchronised: the caller does that, or passes a fence. */
typedef struct gantry_piece {
  const void* address;
  uint64_t bytes;
} gantry_piece;

/* Where a range of addresses really is. */
typedef struct gantry_extent {
  void* arena_data; /* gantry_arena_data of the arena; or where the GPU's allocation begins */
  uint64_t offset;
  uint64_t bytes;
} gantry_extent;

/* Writes the extents of [address, address + bytes) in order, at most `capacity`, and their number
   to `count`, which may be larger. No request is made. Fails with "not_exportable" when a byte of
   it can be registered nowhere; the message says which. Exports nothing. */
GANTRY_FALLIBLE gantry_error* gantry_client_resolve(gantry_client* client, const void* address,
                                                    uint64_t bytes, gantry_extent* extents,
                                                    size_t capacity, size_t* count);

#define GANTRY_REMOTE_READ 1u  /* other workloads may read it */
#define GANTRY_REMOTE_WRITE 2u /* other workloads may write to it */

typedef struct gantry_buffer_spec {
  const char* name;           /* unique in the workload: 1 to 128 of [A-Za-z0-9._:+=-] */
  const gantry_piece* pieces; /* the buffer's bytes are these, one after the other */
  size_t piece_count;
  uint32_t access; /* of other workloads: GANTRY_REMOTE_READ | GANTRY_REMOTE_WRITE, or 0: none */
  /* Block i is the bytes [i * block_stride, i * block_stride + block_bytes) of the buffer.
     block_bytes 0: no blocks, it is moved by ranges; all three are 0. block_stride 0: block_bytes.
   */
  uint64_t block_bytes;
  uint64_t block_stride;
  uint64_t blocks;
} gantry_buffer_spec;

/* Registers `count` buffers in one request, all of them or none, and writes a handle for each to
   `buffers`. Memory that cannot be registered is refused with "not_exportable". */
GANTRY_FALLIBLE gantry_error* gantry_buffers_register(gantry_client* client,
                                                      const gantry_buffer_spec* specs, size_t count,
                                                      gantry_buffer** buffers);

GANTRY_EXPORT const char* gantry_buffer_name(const gantry_buffer* buffer);
GANTRY_EXPORT const char* gantry_buffer_id(const gantry_buffer* buffer);
/* 16 hex digits, new at every registration. */
GANTRY_EXPORT const char* gantry_buffer_generation(const gantry_buffer* buffer);
GANTRY_EXPORT uint64_t gantry_buffer_bytes(const gantry_buffer* buffer);
/* 1 until it was unregistered, by itself, with its arena or with its client. */
GANTRY_EXPORT int gantry_buffer_is_registered(const gantry_buffer* buffer);

/* Withdraws the buffer, waiting `drain_ms` (60 000 at most) for transfers that use it; fails with
   "deadline_exceeded" when they go on, and may be called again. Unregistering twice is no error. */
GANTRY_FALLIBLE gantry_error* gantry_buffer_unregister(gantry_buffer* buffer, uint64_t drain_ms);
/* The same, and says what became of the buffer at each peer that knew it: `report` gets the answer
   to DELETE /v1/buffers/{id}, JSON with a list "peers" of {name, generation, path, outcome}, also
   with the error "deadline_exceeded"; or "" when there was nothing to withdraw. Free it. */
GANTRY_FALLIBLE gantry_error* gantry_buffer_unregister_report(gantry_buffer* buffer,
                                                              uint64_t drain_ms, char** report);
/* Unregisters if that was not done, with 1 second to drain. */
GANTRY_EXPORT void gantry_buffer_destroy(gantry_buffer* buffer);

/* ---- Views: pairs of buffers, so that transfers name only blocks ---- */

/* `local` and `remote` are "buffer[@generation]". remote NULL: `local` is a name, or a pattern in
   which * stands for any characters, and each buffer with a layout that it finds pairs with the
   remote buffer of the same name, in the order in which they were registered. */
typedef struct gantry_view_pair {
  const char* local;
  const char* remote;
} gantry_view_pair;

/* The bytes of each block that move, on either side; both 0: the whole block. */
typedef struct gantry_block_slice {
  uint64_t local_offset;
  uint64_t local_bytes;
  uint64_t remote_offset;
  uint64_t remote_bytes;
} gantry_block_slice;

/* Pairs whose blocks transfers name by one list for each side. */
typedef struct gantry_view_group {
  uint32_t group;                /* its number */
  const gantry_view_pair* pairs; /* NULL: all by name, the pattern "*" */
  size_t pair_count;
  const gantry_block_slice* slices; /* that all move; NULL: whole blocks */
  size_t slice_count;
  /* So many local blocks (their slices) hold what so many remote ones do; one is 1, 0 means 1. */
  uint32_t local_ratio;
  uint32_t remote_ratio;
} gantry_view_group;

typedef struct gantry_view_spec {
  const char* id;   /* unique in the workload; NULL: one is made up */
  const char* peer; /* NULL: this sidecar */
  /* "workload[@generation]"; another life of it is refused with "stale_generation", here and by
     each transfer. */
  const char* remote_workload;
  const gantry_view_group* groups; /* NULL: one of number 0 with all buffers by name */
  size_t group_count;
} gantry_view_spec;

/* Finds the buffers on both sides and checks that their blocks pair up; errors name the pair. The
   view lives until it is deleted or destroyed, or until the client is closed. */
GANTRY_FALLIBLE gantry_error* gantry_view_create(gantry_client* client,
                                                 const gantry_view_spec* spec, gantry_view** view);

GANTRY_EXPORT const char* gantry_view_id(const gantry_view* view);
GANTRY_EXPORT uint64_t gantry_view_pair_count(const gantry_view* view);
/* What one pair of block ids moves in every group, all pairs together. */
GANTRY_EXPORT uint64_t gantry_view_bytes_per_block(const gantry_view* view);
/* What the sidecar said of it, with its pairs and warnings, as JSON; NULL without memory. */
GANTRY_EXPORT char* gantry_view_json(const gantry_view* view);
/* Transfers that run go on. Deleting twice is no error. */
GANTRY_FALLIBLE gantry_error* gantry_view_delete(gantry_view* view);
/* Deletes if that was not done. */
GANTRY_EXPORT void gantry_view_destroy(gantry_view* view);

/* ---- Transfers: reads and writes between buffers ---- */

#define GANTRY_READ 0          /* from the remote buffers into the local ones */
#define GANTRY_WRITE 1         /* from the local buffers into the remote ones */
#define GANTRY_EXECUTOR_ANY 0  /* this sidecar moves the bytes, or the peer where only that can */
#define GANTRY_EXECUTOR_SELF 1 /* this sidecar */
#define GANTRY_EXECUTOR_PEER 2 /* the peer; the local buffers must grant it remote access */
#define GANTRY_QUEUED 0
#define GANTRY_RUNNING 1
#define GANTRY_STOPPING 2 /* its outcome is decided, bytes may still move */
#define GANTRY_SUCCEEDED 3
#define GANTRY_FAILED 4 /* from GANTRY_SUCCEEDED on no byte moves any more */
#define GANTRY_CANCELLED 5
#define GANTRY_EXPIRED 6

/* `bytes` between local[local_index] and remote[remote_index], from these offsets in them. */
typedef struct gantry_range {
  uint32_t local_index;
  uint32_t remote_index;
  uint64_t local_offset;
  uint64_t remote_offset;
  uint64_t bytes;
} gantry_range;

/* Blocks of one group of a view. */
typedef struct gantry_block_group {
  uint32_t group;
  const uint64_t* local_blocks;
  size_t local_count;
  const uint64_t* remote_blocks;
  size_t remote_count;  /* as many, or by the ratio of the group */
  uint64_t first_layer; /* of the group's pairs only these move; */
  uint64_t layer_count; /* both 0: all */
} gantry_block_group;

/* A 64-bit counter in a buffer of this client, at an offset that is a multiple of 8. The transfer
   waits, up to its deadline, until the counter is at least `value`; whoever raises it does so after
   the bytes are there (release order). gantry_timeline.h has streams of a GPU do that. */
typedef struct gantry_fence {
  gantry_buffer* buffer;
  uint64_t offset;
  uint64_t value; /* at least 1 */
} gantry_fence;

/* Names either blocks or ranges, of local and remote buffers or of a view. Block local_blocks[i] of
   local[k] pairs with block remote_blocks[i] of remote[k], for every i and every k. Lists that are
   not NULL with a block_count of 0 move nothing: the transfer succeeds at once, sends its message
   and counts for its hold. */
typedef struct gantry_transfer_spec {
  const char* id; /* unique in the workload; NULL: one is made up */
  int operation;  /* GANTRY_READ or GANTRY_WRITE */
  gantry_buffer* const* local;
  size_t local_count;
  const char* const* remote; /* "[peer/]workload/buffer[@generation]", all of one peer */
  size_t remote_count;
  const uint64_t* local_blocks;
  const uint64_t* remote_blocks;
  size_t block_count;
  const gantry_range* ranges;
  size_t range_count;
  uint64_t deadline_ms; /* after which it expires; 0: the sidecar's default, and not "no time" */
  int priority;         /* -10 to 10, higher goes first */
  const char* require_path; /* as gantry_path_name, or several with commas; NULL: any */
  const char* user_data;    /* up to 1 KiB, given back in events; may be NULL */
  /* In place of local and remote; then the two lists are blocks of group 0, or there are groups. */
  const gantry_view* view;
  const gantry_block_group* groups;
  size_t group_count;
  const gantry_fence* fence; /* NULL: the caller synchronised */
  const char* hold; /* of the remote workload, for reads: refused when it is over; or NULL */
  const uint64_t* hold_consumers; /* as how many it counts there; 0: a part of one; NULL: 1 */
  /* To a workload at the same peer, once all bytes are there, and only if the transfer succeeds.
     The transfer ends when it was answered, or 2 s after the peer is known to be down: "notified"
     and "notify_error" of gantry_transfer_json. It has succeeded either way. NULL: none. */
  const gantry_message* notify;
  int executor; /* GANTRY_EXECUTOR_ANY, _SELF or _PEER */
} gantry_transfer_spec;

typedef struct gantry_transfer_status {
  int state;
  uint32_t workers; /* copy workers that shared the work */
  uint64_t bytes;
  uint64_t bytes_moved;
  uint64_t chunks; /* copies after merging and cutting */
  uint64_t chunks_moved;
  uint64_t descriptors_in;  /* blocks or ranges as asked for */
  uint64_t descriptors_out; /* after contiguous ones were merged */
  uint64_t admit_us;        /* checks and planning */
  uint64_t fence_us;        /* until its fence was reached */
  uint64_t queue_us;        /* until the first chunk moved */
  uint64_t move_us;         /* from there until the last one had */
  uint64_t copy_us;         /* summed over the copy workers */
  uint64_t total_us;
  char path[8]; /* as in `paths` of GET /v1/info; "" before it is chosen */
  int executor; /* GANTRY_EXECUTOR_SELF or _PEER, which took the path; 0: the sidecar did not say */
} gantry_transfer_status;

/* Checks that the local buffers are registered and their memory is the same, then submits and waits
   up to `wait_ms` in that request. One that was accepted but failed: see gantry_transfer_wait. */
GANTRY_FALLIBLE gantry_error* gantry_transfer_submit(gantry_client* client,
                                                     const gantry_transfer_spec* spec,
                                                     uint64_t wait_ms, gantry_transfer** transfer);
GANTRY_EXPORT const char* gantry_transfer_id(const gantry_transfer* transfer);

/* Waits up to `timeout_ms` for the end of the transfer and writes its status (NULL: does not). When
   it failed, was cancelled or expired, returns the reason as an error as well. */
GANTRY_FALLIBLE gantry_error* gantry_transfer_wait(gantry_transfer* transfer, uint64_t timeout_ms,
                                                   gantry_transfer_status* status);

/* Stops the transfer and waits up to `timeout_ms` until no byte of it moves any more. Cancelling
   one that has ended is no error. Which way it ended is in `status`, which may be NULL. */
GANTRY_FALLIBLE gantry_error* gantry_transfer_cancel(gantry_transfer* transfer, uint64_t timeout_ms,
                                                     gantry_transfer_status* status);

/* All that the sidecar last said about the transfer, as JSON: for example why a faster path was not
   taken and which items failed. NULL when out of memory or no JSON says it. No request is made. */
GANTRY_EXPORT char* gantry_transfer_json(const gantry_transfer* transfer);
/* Frees the handle; the transfer itself goes on. */
GANTRY_EXPORT void gantry_transfer_destroy(gantry_transfer* transfer);
GANTRY_END_C
#endif /* GANTRY_H_ */
