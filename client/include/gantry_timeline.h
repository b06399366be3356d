// The part of the Gantry client that says when bytes are ready: timelines, which fences of
// transfers name and which the streams of a GPU write. Conventions, threads too, are those of
// gantry.h.
#pragma once

#include "gantry.h"

GANTRY_BEGIN_C

/* ---- Timelines ---- */

/* Counters in one page of memory, which is an arena and a buffer of its own. Every stream that
   signals has its own counter, and so has the host: signals of one stream are reached in their
   order, those of different streams in the order in which the streams get there. */
typedef struct gantry_timeline gantry_timeline;

#define GANTRY_NO_GPU (-1)

/* For the streams of a GPU of this process, by its ordinal: then the page is pinned for it, and the
   GPU is used by its primary context, as by runtimes. GANTRY_NO_GPU: only the host signals. Fails
   with "path_unavailable" where the process uses no GPU, or where its GPU or the driver cannot
   write in the order of a stream; the message says which, and the hint what to do instead. */
GANTRY_FALLIBLE gantry_error* gantry_timeline_create(gantry_client* client, int device,
                                                     gantry_timeline** timeline);

/* For work of the host that is done: writes to `fence` what is reached already. Nothing of a GPU is
   waited for: of its work the caller has waited for the end. */
GANTRY_FALLIBLE gantry_error* gantry_timeline_signal(gantry_timeline* timeline,
                                                     gantry_fence* fence);

/* For work of a GPU: what is written to `fence` is reached when all that `stream` was given before
   is done; what it is given later must leave alone what the transfer moves.
   `stream` is the vendor's handle (cudaStream_t, hipStream_t) of a stream that exists, of this GPU
   and in its primary context; also NULL and the handles that stand for default streams, which are
   of the context that is current for this thread: it has to be this GPU's, or none
   ("invalid_argument"). One that is being captured is a "conflict": signal where the graph is
   launched. At most 511 streams can have signals that are not reached ("resource_exhausted"). After
   a reset of the GPU (cudaDeviceReset) it is a "device_error": make another timeline. Not from
   within a host function of a stream, which may make no call of the GPU's runtime; a stream that
   takes no more work lets its callers wait, and no others. */
GANTRY_FALLIBLE gantry_error* gantry_timeline_signal_stream(gantry_timeline* timeline, void* stream,
                                                            gantry_fence* fence);

/* Waits, up to `timeout_ms`, for a fence of this timeline: when it returns NULL, what the stream
   did before is done, and this process sees it. "deadline_exceeded" when the stream has not got
   there. "device_error" when the GPU's context was ended meanwhile. */
GANTRY_FALLIBLE gantry_error* gantry_timeline_wait(gantry_timeline* timeline,
                                                   const gantry_fence* fence, uint64_t timeout_ms);

/* The buffer of the counters, which stays the timeline's; fences name it. No other workload may
   read or write it. */
GANTRY_EXPORT gantry_buffer* gantry_timeline_buffer(const gantry_timeline* timeline);

/* Unregisters the buffer, waiting up to a second for transfers whose fences name it; those that
   wait longer still see what streams write. Streams may be about to: the page stays until they
   have. */
GANTRY_EXPORT void gantry_timeline_destroy(gantry_timeline* timeline);

GANTRY_END_C
