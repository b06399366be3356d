// The bodies that the client sends and reads. Plain values and functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "client/include/gantry.h"
#include "client/memory/arena.h"
#include "client/memory/gpu_resolver.h"
#include "lib/base/result.h"
#include "lib/codec/buffer_types.h"
#include "lib/wire/registration_request.h"

namespace gantry::client {

using ResolvedPiece = std::variant<Extent, GpuPiece>;

// One buffer that is to be registered, its pointers resolved.
struct BufferRequest {
  std::string name;
  std::vector<ResolvedPiece> pieces;
  wire::Access access;
  std::optional<wire::BlockLayout> layout;
  std::vector<wire::NoncePlace> verify = {};
  std::vector<gantry_piece> asked = {};  // what the pieces were resolved from
};

// What the sidecar says of a registered one.
struct BufferAnswer {
  std::string name;
  std::string id;
  std::string generation;
};

struct LeaseAnswer {
  std::string lease_token;
  std::string generation;
  std::string handoff_socket;
  bool wants_dma_bufs = false;         // of memory of GPUs; sidecars that know none leave it out
  bool takes_unsealed_memory = false;  // of files that can shrink; older sidecars take none
};

// The last that was said about a transfer.
struct TransferAnswer {
  gantry_transfer_status status = {};
  std::optional<Error> error;
  std::string body;  // in JSON or CBOR

  // The body as JSON; fails where no JSON says the same.
  Result<std::string> Json() const;
};

// What the sidecar says of a view.
struct ViewAnswer {
  struct Pair {
    uint64_t group = 0;
    std::string local;  // the buffer's name
  };
  std::string id;
  uint64_t pair_count = 0;
  uint64_t bytes_per_block = 0;
  std::vector<Pair> pairs;  // in order, one group after the other
  std::string json;
};

std::string LeaseBody(std::string_view engine_id);
std::string RegistrationBody(std::string_view workload, std::span<const BufferRequest> buffers);
// `names` null: all buffers of the workload.
// `memory`: whether the sidecar lets go of it, "release"; empty: it is not said.
std::string SuspensionBody(std::string_view workload, const std::vector<std::string>* names,
                           std::optional<uint64_t> drain_ms, std::string_view memory);

Result<LeaseAnswer> ReadLease(std::string_view body);
Result<std::vector<BufferAnswer>> ReadBuffers(std::string_view body);
Result<ViewAnswer> ReadView(std::string body);
Result<TransferAnswer> ReadTransfer(std::string body);

}  // namespace gantry::client
