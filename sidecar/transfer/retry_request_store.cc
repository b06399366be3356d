#include "sidecar/transfer/retry_request_store.h"

#include <utility>

namespace gantry::engine {
namespace {

size_t BytesOf(const wire::TransferRequest& request) {
  size_t ids = request.local_blocks.capacity() + request.remote_blocks.capacity();
  for (const wire::TransferGroup& group : request.groups) {
    ids += group.local_blocks.capacity() + group.remote_blocks.capacity();
  }
  // References with names of the usual length, and whatever else a request has.
  const size_t references = request.local.capacity() + request.remote.capacity();
  return sizeof(request) + 1024 + ids * sizeof(uint64_t) +
         request.ranges.capacity() * sizeof(wire::TransferRange) +
         references * (sizeof(wire::BufferReference) + 64) +
         (request.notify ? request.notify->message.capacity() : 0);
}

}  // namespace

std::shared_ptr<const wire::TransferRequest> RetryRequestStore::Keep(
    wire::TransferRequest&& request) {
  const size_t bytes = BytesOf(request);
  if (bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes > bytes_max_) {
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    return nullptr;
  }
  return {new wire::TransferRequest(std::move(request)),
          [self = shared_from_this(), bytes](const wire::TransferRequest* kept) {
            self->bytes_.fetch_sub(bytes, std::memory_order_relaxed);
            delete kept;
          }};
}

}  // namespace gantry::engine
