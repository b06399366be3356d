#include "lib/wire/fd_ticket_protocol.h"

#include <algorithm>
#include <charconv>

namespace gantry::wire {
namespace {

constexpr std::string_view kLease = "lease ";
constexpr std::string_view kFds = "fds ";
constexpr std::string_view kOk = "ok ";
constexpr std::string_view kError = "error ";
constexpr size_t kTicketBytes = 32;

bool IsTicket(std::string_view text) {
  return text.size() == kTicketBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

std::string Encode(const FdTicketRequest& request) {
  return std::string(request.verb == FdTicketVerb::kLease ? kLease : kFds) + request.ticket;
}

Result<FdTicketRequest> DecodeFdTicketRequest(std::string_view text) {
  const FdTicketVerb verb = text.starts_with(kLease) ? FdTicketVerb::kLease : FdTicketVerb::kFds;
  const std::string_view prefix = verb == FdTicketVerb::kLease ? kLease : kFds;
  if (!text.starts_with(prefix) || !IsTicket(text.substr(prefix.size()))) {
    return Fail(ErrorCode::kMalformedBody, "not a request of the descriptor socket");
  }
  return FdTicketRequest{verb, std::string(text.substr(prefix.size()))};
}

std::string EncodeFdTicketReply(const Result<size_t>& descriptors) {
  if (descriptors) return std::string(kOk) + std::to_string(*descriptors);
  std::string text = std::string(kError) + std::string(InfoOf(descriptors.error().code).name) +
                     " " + descriptors.error().message;
  text.resize(std::min(text.size(), kFdTicketReplyBytesMax));
  return text;
}

Result<size_t> DecodeFdTicketReply(std::string_view text) {
  if (text.starts_with(kOk)) {
    const std::string_view digits = text.substr(kOk.size());
    size_t count = 0;
    const auto [end, failure] = std::from_chars(digits.begin(), digits.end(), count);
    if (failure == std::errc() && end == digits.end()) return count;
  }
  if (text.starts_with(kError)) {
    const std::string_view rest = text.substr(kError.size());
    const size_t space = rest.find(' ');
    if (space != std::string_view::npos) {
      return Fail(ErrorCodeByName(rest.substr(0, space)), std::string(rest.substr(space + 1)));
    }
  }
  return Fail(ErrorCode::kMalformedBody, "the peer's descriptor socket answered nonsense");
}

}  // namespace gantry::wire
