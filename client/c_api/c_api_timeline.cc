// The functions of gantry_timeline.h, over WorkloadSession and Timeline.
#include <algorithm>
#include <atomic>
#include <string>

#include "client/c_api/c_api_border.h"
#include "client/include/gantry_timeline.h"
#include "client/memory/sealed_memfd.h"
#include "client/timeline/timeline.h"

struct gantry_timeline {
  std::shared_ptr<gantry::client::WorkloadSession> session;
  std::shared_ptr<gantry::client::Arena> arena;
  std::unique_ptr<gantry::client::Timeline> timeline;
  gantry_buffer buffer;
};

namespace gantry::client {
namespace {

constexpr uint64_t kWaitMsMax = uint64_t{1} << 40;  // in nanoseconds it is a number still

Status Fill(gantry_timeline& made, std::optional<int> device) {
  static std::atomic<uint64_t> last = 0;
  WorkloadSession& session = *made.session;
  ASSIGN_OR_RETURN(made.timeline, Timeline::Make(made.arena, device));
  const std::string name = "gantry.timeline-" + std::to_string(last.fetch_add(1));
  const gantry_piece piece = {made.arena->data(), CounterPage::kBytes};
  gantry_buffer_spec spec = {};
  spec.name = name.c_str();
  spec.pieces = &piece;
  spec.piece_count = 1;
  ASSIGN_OR_RETURN(const auto registered,
                   session.memory().Register(std::span(&spec, 1), WorkloadMemory::Trust::kBelieve));
  made.buffer = {made.session, registered.front()};
  return {};
}

gantry_fence FenceAt(gantry_timeline* timeline, const Timeline::Signal& signal) {
  return {&timeline->buffer, signal.offset, signal.value};
}

Status CheckUsable(const gantry_timeline& timeline, const gantry_fence* fence) {
  if (fence == nullptr) return Fail(ErrorCode::kInvalidArgument, "fence is NULL", {}, "fence");
  if (timeline.buffer.buffer->registered) return {};
  return Fail(ErrorCode::kCancelled, "the client of the timeline is closed");
}

}  // namespace
}  // namespace gantry::client

using namespace gantry;          // NOLINT: the functions below cannot be in a namespace
using namespace gantry::client;  // NOLINT

gantry_error* gantry_timeline_create(gantry_client* client, int device,
                                     gantry_timeline** timeline) {
  return EnterObject(client, [&]() -> Status {
    if (timeline == nullptr) {
      return Fail(ErrorCode::kInvalidArgument, "timeline is NULL", {}, "timeline");
    }
    auto made = std::make_unique<gantry_timeline>();
    made->session = client->session;
    ASSIGN_OR_RETURN(const UniqueFd fd, CreateSealedMemfd("gantry-timeline", CounterPage::kBytes));
    ASSIGN_OR_RETURN(made->arena,
                     client->session->memory().AddArena(fd.get(), CounterPage::kBytes, nullptr));
    const auto take_back = [&] {
      static_cast<void>(client->session->memory().CloseArena(*made->arena, 0));
    };
    try {
      Status filled = Fill(*made, device == GANTRY_NO_GPU ? std::nullopt : std::optional(device));
      if (!filled) {
        take_back();
        return filled;
      }
    } catch (...) {
      take_back();
      throw;
    }
    *timeline = made.release();
    return {};
  });
}

gantry_error* gantry_timeline_signal(gantry_timeline* timeline, gantry_fence* fence) {
  return EnterObject(timeline, [&]() -> Status {
    RETURN_IF_ERROR(CheckUsable(*timeline, fence));
    *fence = FenceAt(timeline, timeline->timeline->FromHost());
    return {};
  });
}

gantry_error* gantry_timeline_signal_stream(gantry_timeline* timeline, void* stream,
                                            gantry_fence* fence) {
  return EnterObject(timeline, [&]() -> Status {
    RETURN_IF_ERROR(CheckUsable(*timeline, fence));
    const gpu::StreamHandle handle{reinterpret_cast<uint64_t>(stream)};
    ASSIGN_OR_RETURN(const Timeline::Signal signal, timeline->timeline->FromStream(handle));
    *fence = FenceAt(timeline, signal);
    return {};
  });
}

gantry_error* gantry_timeline_wait(gantry_timeline* timeline, const gantry_fence* fence,
                                   uint64_t timeout_ms) {
  return EnterObject(timeline, [&]() -> Status {
    RETURN_IF_ERROR(CheckUsable(*timeline, fence));
    if (fence->buffer != &timeline->buffer) {
      return Fail(ErrorCode::kInvalidArgument, "the fence is not one of this timeline", {},
                  "fence");
    }
    const milliseconds longest(static_cast<int64_t>(std::min(timeout_ms, kWaitMsMax)));
    return timeline->timeline->Await({fence->offset, fence->value}, longest);
  });
}

gantry_buffer* gantry_timeline_buffer(const gantry_timeline* timeline) {
  return const_cast<gantry_buffer*>(&timeline->buffer);
}

void gantry_timeline_destroy(gantry_timeline* timeline) {
  Destroy(timeline, [&] {
    Status closed = timeline->session->memory().DropArena(*timeline->arena);
    // Transfers that still wait for it need the sidecar's mapping, and nothing of this process.
    timeline->session->memory().buffers().Forget(timeline->buffer.buffer);
    return closed;
  });
}
