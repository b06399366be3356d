// The part of the Gantry client that looks closer at memory: verified registration. Conventions,
// threads too, are those of gantry.h.
#pragma once

#include "gantry.h"

GANTRY_BEGIN_C

/* ---- Verified registration ---- */

/* As gantry_buffers_register, for memory that nothing else reads or writes until it returns,
   neither threads nor a GPU's streams: that is the caller's word. Random bytes are put at both ends
   of each buffer and where its pieces meet, up to 16 in a place; every copy worker of the sidecar
   looks for them through its own mapping; and the bytes that were there are put back, also after an
   error. Peers and transfers find the buffers only then. Where a worker finds other bytes nothing
   is registered and the error is "verification_failed". Arenas that this process cannot write to
   are refused with "fd_read_only". On a GPU the copies take a context of this process (the primary
   one) and a stream of their own. A buffer of that name and content that is there already is
   verified, too, and resumed if it was suspended: suspend it first where peers use it, as they
   would find those bytes, and what they write would be undone. */
GANTRY_FALLIBLE gantry_error* gantry_buffers_register_verified(gantry_client* client,
                                                               const gantry_buffer_spec* specs,
                                                               size_t count,
                                                               gantry_buffer** buffers);

GANTRY_END_C
