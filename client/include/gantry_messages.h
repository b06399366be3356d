// The part of the Gantry client that talks: notifications to other workloads, and holds, which are
// promises that blocks keep their content. Conventions, threads too, are those of gantry.h.
#pragma once

#include "gantry.h"

GANTRY_BEGIN_C

/* ---- Notifications: messages to other workloads, here and at peers ---- */

#define GANTRY_MESSAGE_BYTES_MAX 65536

struct gantry_message {
  const char* to; /* the workload, "name[@generation]"; another life of it is refused */
  const void* data;
  size_t bytes;
  const char* request_id; /* the callers' own UTF-8 text, up to 256 bytes; may be NULL */
};

/* Sends `message` to a workload of `peer` (NULL or "": of this sidecar) and returns before it is
   delivered: an event "notification_outcome" of this workload, with `*id` as its subject, says what
   became of it. The receiver finds it among its events, once. `deadline_ms` 0: 10 seconds, so who
   has no time left does not notify. `id` may be NULL. */
GANTRY_FALLIBLE gantry_error* gantry_notify(gantry_client* client, const char* peer,
                                            const gantry_message* message, uint64_t deadline_ms,
                                            char** id);

/* ---- Holds: promises that blocks keep their content ---- */

/* The same blocks of each of these buffers of this workload; block_count 0: all of the buffers. */
typedef struct gantry_hold_group {
  const char* const* buffers;
  size_t buffer_count;
  const uint64_t* blocks;
  size_t block_count;
} gantry_hold_group;

typedef struct gantry_hold_spec {
  const gantry_hold_group* groups;
  size_t group_count;
  uint64_t ttl_ms;             /* at most an hour */
  uint64_t expected_consumers; /* so many transfers that succeeded end it; 0: none do */
} gantry_hold_spec;

/* Promises that these blocks keep their content, to whoever names the hold in a transfer, until the
   hold ends: an event "hold" says how. Nothing is locked: the promise is the caller's to keep. The
   same id (any text of 1 to 512 bytes) and content again begin the time anew. `expires_unix_ms` may
   be NULL. GPU memory that was
   freed since it was registered is promised to nobody: "stale_generation", see
   gantry_buffers_suspend in gantry_memory.h. */
GANTRY_FALLIBLE gantry_error* gantry_hold_put(gantry_client* client, const char* id,
                                              const gantry_hold_spec* spec,
                                              uint64_t* expires_unix_ms);
/* Gives it `ttl_ms` from now on; fails with "lease_expired" when it is over. */
GANTRY_FALLIBLE gantry_error* gantry_hold_extend(gantry_client* client, const char* id,
                                                 uint64_t ttl_ms, uint64_t* expires_unix_ms);
/* Nobody else begins to read it. `*ended` (may be NULL) is 0 while transfers that have begun do:
   until the event "hold" the blocks are theirs. One that has ended already is no error. */
GANTRY_FALLIBLE gantry_error* gantry_hold_release(gantry_client* client, const char* id,
                                                  int* ended);

GANTRY_END_C
