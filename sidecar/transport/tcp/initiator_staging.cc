// The part of InitiatorStream for parts of jobs that are staged: on their way between the buffer
// and the slices that requests are sent from and received in.
#include <utility>

#include "sidecar/transport/tcp/initiator_stream.h"

namespace gantry::transport {

void InitiatorStream::Stage(MovePart part) {
  if (!part.staged->FitsHalf()) {
    window_used_ -= part.body.bytes;
    const std::shared_ptr<TcpJob> job = part.job;
    return job->Refused(part, Error(ErrorCode::kInternal, "a request is larger than the staging"));
  }
  const uint64_t id = next_unplaced_++;
  auto placed =
      part.staged->TryPlace(&part.local, [self = shared_from_this(), id](SliceLease lease) {
        auto kept = std::make_shared<SliceLease>(std::move(lease));
        self->loop_.Post([self, id, kept] { self->Placed(id, std::move(*kept)); });
      });
  if (placed && *placed) return CopyOut(std::move(part));
  if (placed) {
    unplaced_.emplace(id, std::move(part));
  } else {
    Unstage(std::move(part), placed.error());
  }
}

void InitiatorStream::Placed(uint64_t id, SliceLease lease) {
  auto found = unplaced_.extract(id);
  if (found.empty()) return;  // it was stopped, or the stream was closed
  MovePart part = std::move(found.mapped());
  if (auto placed = part.staged->Place(std::move(lease), &part.local); !placed) {
    Unstage(std::move(part), placed.error());
  } else {
    CopyOut(std::move(part));
  }
  Move();
}

// What a read brings needs its slices only.
void InitiatorStream::CopyOut(MovePart part) {
  const std::shared_ptr<TcpJob> job = part.job;
  if (job->stopped()) {
    return Unstage(std::move(part), Error(ErrorCode::kCancelled, "it was stopped"));
  }
  if (!job->is_write()) return Enqueue(std::move(part));
  ++copying_out_;
  auto kept = std::make_shared<MovePart>(std::move(part));
  kept->staged->Copy(
      {.to_buffer = false, .priority = job->priority(), .owner = job.get()},
      [self = shared_from_this(), kept](const Status& copied) {
        self->loop_.Post([self, kept, copied] { self->CopiedOut(std::move(*kept), copied); });
      });
}

void InitiatorStream::CopiedOut(MovePart part, const Status& copied) {
  --copying_out_;
  if (closed_) return Unstage(std::move(part), Error(ErrorCode::kPeerLost, "its stream ended"));
  if (copied) {
    Enqueue(std::move(part));
  } else {
    window_used_ -= part.body.bytes;
    const std::shared_ptr<TcpJob> job = part.job;
    job->Refused(part, Error(copied.error()).WithContext("copying from the buffer"));
  }
  Move();
}

// The bytes are in their slices. The request is over; the job's part is when they are in the
// buffer.
void InitiatorStream::Land(MovePart part) {
  const std::shared_ptr<TcpJob> job = part.job;
  if (job->stopped()) {
    return job->Lost(std::move(part), Error(ErrorCode::kCancelled, "it was stopped"), {}, true);
  }
  auto kept = std::make_shared<MovePart>(std::move(part));
  kept->staged->Copy({.to_buffer = true, .priority = job->priority(), .owner = job.get()},
                     [job, kept](const Status& copied) {
                       kept->staged->Displace();
                       if (copied) {
                         job->Done(*kept);
                       } else {
                         job->Refused(*kept,
                                      Error(copied.error()).WithContext("copying to the buffer"));
                       }
                       kept->job.reset();
                     });
}

// Nothing of it was sent.
void InitiatorStream::Unstage(MovePart part, const Error& why) {
  window_used_ -= part.body.bytes;
  const std::shared_ptr<TcpJob> job = part.job;
  job->Lost(std::move(part), why, {}, true);
  peer_->Resubmit(job);
}

void InitiatorStream::DropStopped() {
  std::vector<MovePart> stopped;
  for (auto at = unplaced_.begin(); at != unplaced_.end();) {
    if (!at->second.job->stopped()) {
      ++at;
      continue;
    }
    stopped.push_back(std::move(at->second));
    at = unplaced_.erase(at);
  }
  for (MovePart& part : stopped) {
    Unstage(std::move(part), Error(ErrorCode::kCancelled, "it was stopped"));
  }
  if (!stopped.empty()) Move();
}

}  // namespace gantry::transport
