#include "sidecar/peer/server/session_buffers.h"

#include <utility>
#include <vector>

namespace gantry::peer {
namespace {

class UsedBuffer final : public transport::TargetBuffer {
 public:
  UsedBuffer(std::shared_ptr<registry::Buffer> buffer, registry::Buffer::Use use)
      : buffer_(std::move(buffer)), use_(std::move(use)) {}

  const memory::PieceMap& pieces() const override { return buffer_->description().pieces; }
  const std::vector<std::shared_ptr<const memory::MappedAllocation>>& allocations() const override {
    return use_.allocations();
  }

 private:
  const std::shared_ptr<registry::Buffer> buffer_;
  const registry::Buffer::Use use_;
};

}  // namespace

Result<std::unique_ptr<transport::TargetBuffer>> SessionBuffers::Acquire(std::string_view session,
                                                                         std::string_view buffer_id,
                                                                         uint64_t generation,
                                                                         bool for_write) {
  ASSIGN_OR_RETURN(const wire::Access access, initiators_.AccessOf(session, buffer_id));
  if (!access.remote_read && !access.remote_write) {
    return Fail(ErrorCode::kStaleGeneration, "the buffer was not described, or was revoked since",
                "ask for its description again");
  }
  if (for_write ? !access.remote_write : !access.remote_read) {
    return Fail(ErrorCode::kPermissionDenied,
                for_write ? "the buffer may be read by this peer, not written"
                          : "the buffer may be written by this peer, not read");
  }
  ASSIGN_OR_RETURN(std::shared_ptr<registry::Buffer> buffer, registry_.ById(buffer_id));
  if (buffer->description().generation != generation) {
    return Fail(ErrorCode::kStaleGeneration, "the buffer was registered anew");
  }
  ASSIGN_OR_RETURN(registry::Buffer::Use use, buffer->Acquire("a peer that does not map it"));
  return std::make_unique<UsedBuffer>(std::move(buffer), std::move(use));
}

}  // namespace gantry::peer
