// The part of the Gantry client that looks closer at memory: verified registration, sleep mode,
// and arenas that a GPU reaches. Conventions, threads too, are those of gantry.h.
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

/* ---- Private memory, and memory that is shared already ---- */

/* Makes a block of private memory (malloc, numpy, a tensor of the CPU) an arena where it is: its
   pages are copied into a memfd, slice by slice, which takes their place at the same addresses.
   Buffers in it are then registered as in any arena. It is the caller's word that no thread uses
   the block until this returns, and that no device has its pages (RDMA, io_uring, O_DIRECT).
   Memory of a GPU and of arenas that others made needs none of it: `arena` gets NULL. A shared
   mapping of a file of tmpfs or of a memfd becomes an arena as it is, the whole mapping: its file
   is found by a descriptor of this process or by its path. A file that is not sealed against
   shrinking is "fd_not_sealed" unless the sidecar runs with --unsealed-memory.

   Without flags the address is the beginning of a block that malloc of glibc has mapped by itself
   (of 128 KiB at least): its pages hold nothing else. With GANTRY_PART_OF_BLOCK the bytes may be
   any part of such a block: its beginning is looked for in front of the address. The block is
   adopted whole in both cases. With GANTRY_OWN_MAPPING it is whole pages that the caller has mapped
   by mmap, and no allocator has them. "not_exportable" for other blocks, and for memory that is in
   a heap of malloc, of a file on a disk, not writable, locked, of hugetlb, or pinned for a GPU; the
   hint says the way out. "invalid_argument" where not all is mapped, "resource_exhausted" where
   memory is short or RLIMIT_FSIZE is set, "conflict" where a part is adopted already.

   Until the block is freed its pages stay shared memory (`shmem` in the control group). So a child
   of fork sees what its parent writes there, and the other way round; MADV_DONTNEED does not zero
   them. Do not give them to an allocator that keeps free pages: it would share them with children.
   realloc and free of blocks that malloc has mapped work, once no buffer is registered in them.

   Close or destroy the arena before the block is freed: its memfd keeps the memory. The same block
   can be adopted several times; each handle is closed by itself, and the last one closes the
   arena. All handles have one pin: the first unpin ends it. */
#define GANTRY_OWN_MAPPING 1u
#define GANTRY_PART_OF_BLOCK 2u
GANTRY_FALLIBLE gantry_error* gantry_arena_adopt_private(gantry_client* client, void* address,
                                                         uint64_t bytes, uint32_t flags,
                                                         gantry_arena** arena);

/* ---- Sleep mode ---- */

/* For an engine's sleep mode. Suspend unmaps buffers in every sidecar but keeps them registered:
   transfers that name them fail with "draining" until they are resumed. GPU memory that is freed
   after it returned is free at once. Resume registers what is at the buffers' addresses then, be
   it other memory, under the same ids and generations; "not_exportable" when there is none, and
   the buffers stay suspended. `buffers` NULL: all.
   Call it before the memory is freed: drivers tell nobody that memory was freed, and a peer goes
   on reading what was there. What this process does itself with such a buffer (a transfer, a hold)
   fails with "stale_generation"; a hold suspends it, too. */
GANTRY_FALLIBLE gantry_error* gantry_buffers_suspend(gantry_client* client,
                                                     gantry_buffer* const* buffers, size_t count,
                                                     uint64_t drain_ms);
GANTRY_FALLIBLE gantry_error* gantry_buffers_resume(gantry_client* client,
                                                    gantry_buffer* const* buffers, size_t count);

/* ---- Pinned arenas ---- */

/* Where a GPU finds a byte. It is no pointer: the host cannot follow it, and it does not follow
   from the host's address of that byte, nor the other way round. Within one arena offsets are the
   same. */
typedef struct gantry_device_address {
  uint64_t number;
} gantry_device_address;

/* Pins an arena for a GPU of this process, by its ordinal: the GPU's kernels and streams can use
   it, and all GPUs copy to and from it without a copy in between. `address` (may be NULL) is where
   that GPU finds gantry_arena_data. Again for the same GPU is no error; another one is a
   "conflict". The GPU is used by its primary context, as by runtimes; one that this process does
   not use yet takes some hundred MiB of its memory. Fails with "path_unavailable" where the process
   uses no GPU or its driver pins no such memory, with "conflict" where it has pinned the memory by
   itself, and with "fd_read_only". gantry_arena_close and gantry_arena_destroy unpin: like
   gantry_arena_unpin they must come after the GPU's work on the arena, for which they do not
   wait. */
GANTRY_FALLIBLE gantry_error* gantry_arena_pin(gantry_arena* arena, int device,
                                               gantry_device_address* address);
/* Of memory that no work of a GPU uses any more. gantry_arena_close does it, too, before the memory
   may go. Twice is no error, nor is it that the GPU's context has ended. Where the driver does not
   let go of it ("device_error", of gantry_arena_close, too) it is still pinned: keep what you have
   mapped mapped, and try again; what the library has mapped stays. */
GANTRY_FALLIBLE gantry_error* gantry_arena_unpin(gantry_arena* arena);

GANTRY_END_C
