#include "sidecar/peer/server/stream_offers.h"

#include "lib/base/host_port.h"
#include "lib/base/log.h"

namespace gantry::peer {
namespace {

constexpr milliseconds kSayAgain{5'000};

}  // namespace

Status StreamOffers::Listen(transport::TargetBuffers& buffers) {
  if (options_.listen.empty()) return {};
  ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(options_.listen));
  ASSIGN_OR_RETURN(server_, transport::TcpServer::Create(
                                options_.tcp, at.host, at.port, *options_.loops, *options_.helpers,
                                buffers, options_.security, options_.staging));
  log::Info("data connections are taken",
            {{"address", HostPort{at.host, port()}.Text()}, {"tls", options_.security != nullptr}});
  return {};
}

Status StreamOffers::Offer(const std::string& session, uint32_t count,
                           wire::proto::OpenStreamsReply* reply) {
  if (server_ == nullptr) {
    return Fail(ErrorCode::kPathUnavailable, "this sidecar takes no data connections",
                "start it with an address for them");
  }
  if (count == 0 || count > wire::kPeerStreamsMax) {
    return Fail(ErrorCode::kMalformedBody, "count of a peer's message is " + std::to_string(count) +
                                               ", it has to be 1 to " +
                                               std::to_string(wire::kPeerStreamsMax));
  }
  std::string certificate;
  if (options_.security != nullptr) {
    ASSIGN_OR_RETURN(certificate, options_.security->CertificateSha256());
  }
  ASSIGN_OR_RETURN(const auto tickets,
                   server_->tickets().Issue(session, count, options_.ticket_ttl));
  reply->add_addresses(options_.advertised.empty() ? ":" + std::to_string(port())
                                                   : HostPort{options_.advertised, port()}.Text());
  for (const std::string& ticket : tickets) reply->add_tickets(ticket);
  reply->set_ttl_ms(static_cast<uint32_t>(options_.ticket_ttl.count()));
  reply->set_tls(options_.security != nullptr);
  reply->set_certificate_sha256(certificate);
  return {};
}

void StreamOffers::End(const std::string& session) {
  if (server_ == nullptr) return;
  while (!server_->EndSession(session, Clock::now() + kSayAgain)) {
    log::Error("data connections of a session that is over do not end; its buffers stay in use",
               {});
  }
}

std::string StreamOffers::WhyNotStaged(wire::MemoryKind kind) const {
  if (options_.staging == nullptr) {
    return options_.why_not_staged.empty() ? "nothing stages it here" : options_.why_not_staged;
  }
  const Status usable = options_.staging->copier.Usable(kind);
  return usable ? "" : usable.error().message;
}

metrics::TcpConnections StreamOffers::Totals() const {
  if (server_ == nullptr) return {};
  const transport::TargetHub::Totals& totals = server_->totals();
  return {server_->connections(), totals.accepted, totals.turned_away + totals.broken,
          totals.bytes_read, totals.bytes_written};
}

}  // namespace gantry::peer
