#include "sidecar/peer/link/peer_session.h"

#include <utility>

#include "sidecar/peer/client/queue_pair_exchanger.h"
#include "sidecar/peer/client/stage_exchanger.h"
#include "sidecar/peer/client/stream_opener.h"
#include "sidecar/transport/bounce/bounce_transport.h"
#include "sidecar/transport/rdma/rdma_transport.h"
#include "sidecar/transport/tcp/tcp_transport.h"

namespace gantry::peer {
namespace {

// A peer that takes no data connection must not hold the link's thread longer.
constexpr milliseconds kCheckMax{2'000};

bool IsByRdma(wire::Path path) { return path == wire::Path::kRdma || path == wire::Path::kBounce; }

}  // namespace

PeerSession::PeerSession(const PeerDirectoryOptions& options, std::string peer, uint64_t number,
                         std::shared_ptr<PeerClient> client, const std::function<bool()>& given_up)
    : options_(options), peer_(std::move(peer)), number_(number), client_(std::move(client)) {
  OpenPaths(given_up);
}

void PeerSession::OpenPaths(const std::function<bool()>& given_up) {
  const auto leads = [&](wire::Path path) {
    return facts().paths[static_cast<size_t>(path)].available;
  };
  if (options_.tcp != nullptr && leads(wire::Path::kTcp)) {
    paths_.streams = options_.tcp->AddPeer(peer_, std::make_shared<StreamOpener>(client_));
    // Now, so that the path is not said to be available where a firewall stands before the data.
    paths_.streams->Check(Clock::now() + kCheckMax, given_up);
  }
  if (options_.rdma != nullptr && leads(wire::Path::kRdma)) {
    paths_.queue_pairs =
        options_.rdma->AddPeer(peer_, std::make_shared<QueuePairExchanger>(client_));
  }
  if (options_.bounce != nullptr && paths_.queue_pairs != nullptr && leads(wire::Path::kBounce)) {
    paths_.stage = options_.bounce->AddStage(peer_, paths_.queue_pairs,
                                             std::make_shared<StageExchanger>(client_));
  }
}

// Only a missing device of this side takes a path away. Where the GPUs or the memory here lack
// something, the peer may execute.
std::vector<wire::PathReport> PeerSession::PathReports() const {
  std::vector<wire::PathReport> reports = facts().paths;
  for (wire::PathReport& report : reports) {
    if (!report.available || !IsByRdma(report.path) || options_.rdma != nullptr) continue;
    report = {report.path, false, "not on this side: " + options_.why_no_rdma};
  }
  return reports;
}

Status PeerSession::CheckPath(wire::Path path) const {
  if (path == wire::Path::kTcp && paths_.streams != nullptr) return paths_.streams->Reached();
  if (IsByRdma(path) && paths_.queue_pairs != nullptr) return paths_.queue_pairs->Reached();
  return {};
}

// The peer does not know the session or the ticket any more. The caller did not fail to say who it
// is: the described buffer has been taken back meanwhile.
tl::unexpected<Error> PeerSession::Failure(Error error) const {
  if (error.code == ErrorCode::kUnauthenticated) {
    error.code = ErrorCode::kStaleGeneration;
    error.hint = "submit again: the buffer was being deleted or registered anew";
  }
  return Fail(std::move(error).WithContext("peer '" + peer_ + "'"));
}

void PeerSession::Close(const Error& why) {
  if (paths_.streams != nullptr) paths_.streams->Close(why);
  if (paths_.queue_pairs != nullptr) paths_.queue_pairs->Close(why);
  client_->Break();
}

}  // namespace gantry::peer
