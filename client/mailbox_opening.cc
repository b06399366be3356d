#include "client/mailbox_opening.h"

#include <sys/socket.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "client/http_reply_parser.h"
#include "lib/base/fd_passing.h"
#include "lib/base/poll_fd.h"
#include "lib/base/unique_fd.h"

namespace gantry::client {
namespace {

constexpr size_t kReplyReadBytes = 4096;
constexpr int kVersion = 1;
constexpr std::string_view kRequest =
    "POST /v1/mailbox HTTP/1.1\r\nHost: gantry\r\nAccept: application/json\r\n"
    "Content-Length: 0\r\n\r\n";

using Outcome = OpenedMailbox::Outcome;

Outcome OutcomeOf(const HttpReply& reply, const UniqueFd& memory) {
  if (reply.status == 429) return Outcome::kNotNow;
  if (reply.status != 201 || !memory.valid()) return Outcome::kNever;
  const auto body = nlohmann::json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  const bool is_known = body.is_object() && body.contains("version") && body["version"] == kVersion;
  return is_known ? Outcome::kOpened : Outcome::kNever;
}

}  // namespace

Result<OpenedMailbox> OpenMailbox(int socket, TimePoint deadline) {
  if (::send(socket, kRequest.data(), kRequest.size(), MSG_NOSIGNAL) != std::ssize(kRequest)) {
    return Fail(SystemError(ErrorCode::kPeerLost, "asking for a mailbox", errno));
  }
  HttpReplyParser parser;
  UniqueFd memory;
  for (bool complete = false; !complete;) {
    if (!AwaitInput(socket, deadline)) {
      return Fail(ErrorCode::kDeadlineExceeded, "the sidecar does not answer");
    }
    ASSIGN_OR_RETURN(FdMessage message, ReceiveMessage(socket, kReplyReadBytes));
    if (!message.fds.empty()) memory = std::move(message.fds.front());
    if (message.closed) return Fail(ErrorCode::kPeerLost, "the sidecar closed the connection");
    ASSIGN_OR_RETURN(complete, parser.Take(message.payload));
  }
  if (!parser.reusable()) return Fail(ErrorCode::kPeerLost, "the sidecar ends the connection");
  OpenedMailbox opened;
  opened.outcome = OutcomeOf(parser.TakeReply(), memory);
  if (opened.outcome != Outcome::kOpened) return opened;
  ASSIGN_OR_RETURN(Mailbox mailbox, Mailbox::Map(memory.get(), Mailbox::End::kClient));
  opened.mailbox.emplace(std::move(mailbox));
  return opened;
}

}  // namespace gantry::client
