#include "lib/wire/peer_messages.h"

#include <algorithm>
#include <optional>
#include <set>

#include "lib/base/byte_range.h"
#include "lib/base/name.h"
#include "lib/wire/hold.h"
#include "lib/wire/peer_message_limit.h"
#include "lib/wire/rdma_messages.h"

namespace gantry::wire {
namespace {

Status Limit(std::string_view field, size_t value, size_t max) {
  return LimitOfPeer(field, value, max);
}

Status CheckId(std::string_view id, std::string_view field) {
  if (id.empty())
    return Fail(ErrorCode::kMalformedBody, "a peer's message lacks " + std::string(field));
  return Limit(field, id.size(), kPeerIdBytesMax);
}

std::string Shortened(const std::string& text) { return text.substr(0, kPeerTextBytesMax); }

Result<std::vector<PeerAllocation>> AllocationsOf(const proto::BufferDescriptor& message) {
  RETURN_IF_ERROR(Limit("allocations", message.allocations_size(), kPeerPiecesMax));
  std::vector<PeerAllocation> allocations;
  std::set<uint64_t> ids;
  for (const proto::Allocation& part : message.allocations()) {
    PeerAllocation allocation{part.id(), part.size(), part.writable()};
    if (part.kind() == proto::MEMORY_KIND_GPU) {
      allocation.kind = MemoryKind::kGpu;
      const proto::GpuFacts& gpu = part.gpu();
      const GpuExport by_fd = gpu.dma_buf() ? GpuExport::kDmaBuf : GpuExport::kPiece;
      allocation.gpu = {gpu.piece() || gpu.dma_buf() ? by_fd : GpuExport::kHandle,
                        gpu.device_uuid(), gpu.buffer_id(), gpu.exporter_pid(), gpu.fd_offset()};
      allocation.identity_high = part.identity_high();
      allocation.identity_low = part.identity_low();
      if (Status good = CheckGpuFacts(allocation.gpu); !good) {
        return Fail(ErrorCode::kMalformedBody, good.error().message);
      }
      uint64_t end = 0;
      if (!EndOf(gpu.fd_offset(), part.size(), &end)) {
        return Fail(ErrorCode::kMalformedBody, "an allocation that wraps around in its dma-buf");
      }
    } else if (part.kind() != proto::MEMORY_KIND_HOST) {
      return Fail(ErrorCode::kPathUnavailable,
                  "the buffer has a kind of memory that this build does not know");
    }
    if (part.size() == 0) return Fail(ErrorCode::kMalformedBody, "an allocation of 0 bytes");
    if (!ids.insert(part.id()).second) {
      return Fail(ErrorCode::kMalformedBody, "an allocation is listed twice");
    }
    if (message.remote_write() && !part.writable()) {
      return Fail(ErrorCode::kMalformedBody, "a writable buffer over a read-only allocation");
    }
    allocations.push_back(std::move(allocation));
  }
  return allocations;
}

Result<std::vector<Piece>> PiecesOf(const proto::BufferDescriptor& message) {
  RETURN_IF_ERROR(Limit("pieces", message.pieces_size(), kPeerPiecesMax));
  std::vector<Piece> pieces;
  pieces.reserve(message.pieces_size());
  for (const proto::Piece& piece : message.pieces()) {
    pieces.push_back({piece.allocation(), piece.offset(), piece.length()});
  }
  return pieces;
}

}  // namespace

void ToMessage(const PeerIdentity& identity, proto::Identity* message) {
  message->set_name(identity.name);
  message->set_generation(identity.generation);
  message->set_node_id(identity.node_id);
  message->set_build(identity.build);
}

Result<PeerIdentity> FromMessage(const proto::Identity& message) {
  RETURN_IF_ERROR(CheckName(message.name(), "name"));
  RETURN_IF_ERROR(CheckId(message.node_id(), "node_id"));
  RETURN_IF_ERROR(Limit("build", message.build().size(), kPeerIdBytesMax));
  if (message.generation() == 0) {
    return Fail(ErrorCode::kMalformedBody, "a peer's identity lacks its generation");
  }
  return PeerIdentity{message.name(), message.generation(), message.node_id(), message.build()};
}

void ToMessage(std::span<const PathReport> paths,
               google::protobuf::RepeatedPtrField<proto::PathStatement>* messages) {
  for (const PathReport& report : paths) {
    proto::PathStatement* message = messages->Add();
    message->set_path(InfoOf(report.path).number);
    message->set_available(report.available);
    message->set_reason(Shortened(report.reason));
  }
}

Result<std::vector<PathReport>> FromMessage(
    const google::protobuf::RepeatedPtrField<proto::PathStatement>& messages) {
  RETURN_IF_ERROR(Limit("paths", messages.size(), kPeerPathsMax));
  std::vector<PathReport> paths;
  paths.reserve(kPathCount);
  for (const Path path : kPaths) {
    paths.push_back({path, false, "the peer does not speak of this path"});
  }
  for (const proto::PathStatement& message : messages) {
    const std::optional<Path> path = PathByNumber(message.path());
    if (!path) continue;
    PathReport& report = paths[static_cast<size_t>(*path)];
    report.available = message.available();
    report.reason = message.available() ? "" : Shortened(message.reason());
  }
  return paths;
}

void ToMessage(const PeerBuffer& buffer, proto::BufferDescriptor* message) {
  message->set_workload(buffer.workload);
  message->set_name(buffer.name);
  message->set_id(buffer.id);
  message->set_generation(buffer.generation);
  message->set_workload_generation(buffer.workload_generation);
  message->set_length(buffer.length);
  message->set_remote_read(buffer.access.remote_read);
  message->set_remote_write(buffer.access.remote_write);
  if (buffer.layout) {
    message->mutable_layout()->set_block_bytes(buffer.layout->block_bytes);
    message->mutable_layout()->set_block_stride(buffer.layout->block_stride);
    message->mutable_layout()->set_blocks(buffer.layout->blocks);
  }
  for (const Piece& piece : buffer.pieces) {
    proto::Piece* part = message->add_pieces();
    part->set_allocation(piece.allocation);
    part->set_offset(piece.offset);
    part->set_length(piece.length);
  }
  for (const PeerAllocation& allocation : buffer.allocations) {
    proto::Allocation* part = message->add_allocations();
    part->set_id(allocation.id);
    part->set_size(allocation.size);
    part->set_writable(allocation.writable);
    part->set_kind(allocation.kind == MemoryKind::kGpu ? proto::MEMORY_KIND_GPU
                                                       : proto::MEMORY_KIND_HOST);
    if (allocation.kind != MemoryKind::kGpu) continue;
    proto::GpuFacts* gpu = part->mutable_gpu();
    gpu->set_device_uuid(allocation.gpu.device_uuid);
    gpu->set_buffer_id(allocation.gpu.buffer_id);
    gpu->set_exporter_pid(allocation.gpu.exporter_pid);
    gpu->set_piece(allocation.gpu.form == GpuExport::kPiece);
    gpu->set_dma_buf(allocation.gpu.form == GpuExport::kDmaBuf);
    gpu->set_fd_offset(allocation.gpu.fd_offset);
    part->set_identity_high(allocation.identity_high);
    part->set_identity_low(allocation.identity_low);
  }
  ToMessage(buffer.paths, message->mutable_paths());
  ToMessage(buffer.rdma_chunks, message);
  for (const uint32_t device : buffer.rdma_devices) message->add_rdma_devices(device);
}

Result<PeerBuffer> FromMessage(const proto::BufferDescriptor& message) {
  PeerBuffer buffer;
  RETURN_IF_ERROR(CheckName(message.workload(), "workload"));
  RETURN_IF_ERROR(CheckName(message.name(), "name"));
  RETURN_IF_ERROR(CheckId(message.id(), "id"));
  if (message.generation() == 0) {
    return Fail(ErrorCode::kMalformedBody, "a peer's buffer lacks its generation");
  }
  if (!message.remote_read() && !message.remote_write()) {
    return Fail(ErrorCode::kPermissionDenied, "the peer grants no access to the buffer");
  }
  buffer.workload = message.workload();
  buffer.name = message.name();
  buffer.id = message.id();
  buffer.generation = message.generation();
  buffer.workload_generation = message.workload_generation();
  buffer.length = message.length();
  buffer.access = {message.remote_read(), message.remote_write()};
  if (message.has_layout()) {
    buffer.layout = BlockLayout{message.layout().block_bytes(), message.layout().block_stride(),
                                message.layout().blocks()};
    RETURN_IF_ERROR(CheckLayout(*buffer.layout, buffer.length));
  }
  ASSIGN_OR_RETURN(buffer.allocations, AllocationsOf(message));
  ASSIGN_OR_RETURN(buffer.pieces, PiecesOf(message));
  ASSIGN_OR_RETURN(buffer.paths, FromMessage(message.paths()));
  ASSIGN_OR_RETURN(buffer.rdma_chunks, RdmaChunksOf(message));
  ASSIGN_OR_RETURN(buffer.rdma_devices, RdmaDevicesOf(message));
  return buffer;
}

Status CheckReferenceCount(const proto::DescribeRequest& message) {
  return Limit("references", message.references_size(), kPeerReferencesMax);
}

Result<BufferReference> FromMessage(const proto::Reference& message) {
  RETURN_IF_ERROR(CheckName(message.workload(), "workload"));
  RETURN_IF_ERROR(CheckName(message.buffer(), "buffer"));
  return BufferReference{{},
                         message.workload(),
                         message.buffer(),
                         message.generation(),
                         message.workload_generation()};
}

Result<std::vector<WantedAllocation>> FromMessage(const proto::ConnectRequest& message) {
  RETURN_IF_ERROR(Limit("wanted", message.wanted_size(), kPeerWantedMax));
  std::vector<WantedAllocation> wanted;
  wanted.reserve(message.wanted_size());
  for (const proto::Wanted& part : message.wanted()) {
    RETURN_IF_ERROR(CheckId(part.buffer_id(), "buffer_id"));
    wanted.push_back(
        {part.buffer_id(), part.buffer_generation(), part.allocation_id(), part.writable()});
  }
  return wanted;
}

Result<PeerRevocation> FromMessage(const proto::Revoked& message) {
  RETURN_IF_ERROR(CheckId(message.buffer_id(), "buffer_id"));
  return PeerRevocation{
      message.revocation(),        message.buffer_id(),
      message.buffer_generation(), std::min(message.grace_ms(), message.deadline_ms()),
      message.deadline_ms(),       message.suspended()};
}

void ToMessage(const Notification& notification, proto::NotifyRequest* message) {
  message->set_from_workload(notification.from_workload);
  message->set_from_workload_generation(notification.from_workload_generation);
  message->set_id(notification.id);
  message->set_to_workload(notification.content.to);
  message->set_to_generation(notification.content.to_generation);
  message->set_request_id(notification.content.request_id);
  message->set_message(notification.content.message);
}

Result<Notification> FromMessage(const proto::NotifyRequest& message) {
  RETURN_IF_ERROR(CheckName(message.from_workload(), "from_workload"));
  RETURN_IF_ERROR(CheckName(message.to_workload(), "to_workload"));
  RETURN_IF_ERROR(Limit("id", message.id().size(), kNotificationIdBytesMax));
  RETURN_IF_ERROR(Limit("request_id", message.request_id().size(), kRequestIdBytesMax));
  RETURN_IF_ERROR(Limit("message", message.message().size(), kNotificationBytesMax));
  if (message.id().empty() || message.from_workload_generation() == 0) {
    return Fail(ErrorCode::kMalformedBody, "a peer's notification lacks its id");
  }
  Notification notification;
  notification.from_workload = message.from_workload();
  notification.from_workload_generation = message.from_workload_generation();
  notification.id = message.id();
  notification.content = {message.to_workload(), message.to_generation(), message.request_id(),
                          message.message()};
  return notification;
}

void ToMessage(const HoldUse& use, proto::UseHoldRequest* message) {
  message->set_workload(use.workload);
  message->set_hold(use.hold);
  message->set_for_ms(use.for_ms);
  message->set_consumers(use.consumers);
  for (const HoldUsePart& part : use.parts) {
    proto::HoldUsePart* out = message->add_parts();
    for (const HeldBuffer& buffer : part.buffers) {
      proto::Reference* reference = out->add_buffers();
      reference->set_workload(use.workload);
      reference->set_buffer(buffer.name);
      reference->set_generation(buffer.generation);
    }
    out->set_whole(!part.blocks);
    if (part.blocks) out->mutable_blocks()->Add(part.blocks->begin(), part.blocks->end());
  }
}

Result<HoldUse> FromMessage(const proto::UseHoldRequest& message) {
  RETURN_IF_ERROR(CheckName(message.workload(), "workload"));
  RETURN_IF_ERROR(CheckHoldId(message.hold(), "hold"));
  HoldUse use{message.workload(), message.hold(), {}, message.for_ms(), message.consumers()};
  size_t buffers = 0, blocks = 0;
  for (const proto::HoldUsePart& part : message.parts()) {
    buffers += static_cast<size_t>(part.buffers_size());
    blocks += static_cast<size_t>(part.blocks_size());
  }
  RETURN_IF_ERROR(Limit("consumers", use.consumers, kHoldConsumersMax));
  RETURN_IF_ERROR(Limit("parts", message.parts_size(), kPeerReferencesMax));
  RETURN_IF_ERROR(Limit("buffers", buffers, kPeerReferencesMax));
  RETURN_IF_ERROR(Limit("blocks", blocks, kPeerHoldBlocksMax));
  if (buffers == 0) return Fail(ErrorCode::kMalformedBody, "a use of a hold names no buffer");
  for (const proto::HoldUsePart& part : message.parts()) {
    HoldUsePart& taken = use.parts.emplace_back();
    for (const proto::Reference& reference : part.buffers()) {
      RETURN_IF_ERROR(CheckName(reference.buffer(), "buffer"));
      taken.buffers.push_back({reference.buffer(), reference.generation()});
    }
    if (!part.whole()) taken.blocks.emplace(part.blocks().begin(), part.blocks().end());
  }
  return use;
}

void ToMessage(std::span<const HoldUseEnd> ends, proto::EndHoldUseRequest* message) {
  message->set_use(ends.front().use);
  message->set_succeeded(ends.front().succeeded);
  for (const HoldUseEnd& end : ends.subspan(1)) {
    proto::HoldUseEnd* out = message->add_more();
    out->set_use(end.use);
    out->set_succeeded(end.succeeded);
  }
}

Result<std::vector<HoldUseEnd>> FromMessage(const proto::EndHoldUseRequest& message) {
  RETURN_IF_ERROR(Limit("more", message.more_size(), kPeerHoldUseEndsMax - 1));
  std::vector<HoldUseEnd> ends{{message.use(), message.succeeded()}};
  for (const proto::HoldUseEnd& end : message.more()) {
    ends.push_back({end.use(), end.succeeded()});
  }
  return ends;
}

void ToMessage(const Error& error, proto::Problem* message) {
  message->set_code(std::string(InfoOf(error.code).name));
  message->set_message(Shortened(error.message));
  message->set_hint(Shortened(error.hint));
}

Error FromMessage(const proto::Problem& message) {
  return {ErrorCodeByName(message.code()), Shortened(message.message()), Shortened(message.hint())};
}

Status CheckSecret(std::string_view text, std::string_view field) {
  const bool hex = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (text.size() == 32 && hex) return {};
  return Fail(ErrorCode::kMalformedBody, std::string(field) + " is not 32 hexadecimal digits");
}

Result<PeerStreams> FromMessage(const proto::OpenStreamsReply& message, std::string_view host) {
  RETURN_IF_ERROR(Limit("addresses", message.addresses_size(), kPeerAddressesMax));
  RETURN_IF_ERROR(Limit("tickets", message.tickets_size(), kPeerStreamsMax));
  PeerStreams streams;
  for (const std::string& ticket : message.tickets()) {
    RETURN_IF_ERROR(CheckSecret(ticket, "ticket"));
    streams.tickets.push_back(ticket);
  }
  if (message.addresses_size() == 0 || streams.tickets.empty()) {
    return Fail(ErrorCode::kMalformedBody, "the peer answered without an address or a ticket");
  }
  std::string address = message.addresses(0);
  if (address.starts_with(':')) {
    const std::string reached = HostPort{std::string(host), 0}.Text();
    address.insert(0, reached, 0, reached.rfind(':'));
  }
  ASSIGN_OR_RETURN(streams.address, ParseHostPort(address));
  if (streams.address.port == 0) {
    return Fail(ErrorCode::kMalformedBody, "the peer answered with port 0");
  }
  streams.tls = message.tls();
  streams.certificate_sha256 = message.certificate_sha256();
  if (streams.certificate_sha256.size() != (streams.tls ? kSha256Bytes : 0)) {
    return Fail(ErrorCode::kMalformedBody,
                "certificate_sha256 has to be 32 bytes with TLS, or none");
  }
  return streams;
}

Result<std::vector<std::string>> GpusOf(const proto::HelloReply& message) {
  RETURN_IF_ERROR(LimitOfPeer("gpus", static_cast<size_t>(message.gpus_size()), kPeerGpusMax));
  std::vector<std::string> gpus;
  for (const std::string& uuid : message.gpus()) {
    RETURN_IF_ERROR(LimitOfPeer("gpus", uuid.size(), kDeviceUuidBytesMax));
    gpus.push_back(uuid);
  }
  return gpus;
}

Status CheckSocketName(std::string_view name) {
  if (!name.empty() && name.size() <= kPeerIdBytesMax && name != "." && name != ".." &&
      name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos) {
    return {};
  }
  return Fail(ErrorCode::kMalformedBody, "the peer's socket name is not a plain file name");
}

}  // namespace gantry::wire
