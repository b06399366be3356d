// The functions of gantry_messages.h, over WorkloadSession.
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "client/c_api/c_api_border.h"
#include "client/session/client_json.h"
#include "client/session/message_bodies.h"
#include "lib/base/json_text.h"
#include "lib/base/url_escape.h"
#include "lib/codec/body_fields.h"
#include "lib/wire/hold.h"

namespace gantry::client {
namespace {

Status CheckId(const char* id) {
  if (id == nullptr) return Fail(ErrorCode::kInvalidArgument, "no id", {}, "id");
  return wire::CheckHoldId(id, "id");
}

std::string HoldTarget(const char* id) { return "/v1/holds/" + UrlEscape(id); }

Status SendHoldRequest(WorkloadSession& session, std::string_view method, const char* id,
                       const std::string& body, uint64_t* expires_unix_ms) {
  static constexpr std::array<std::string_view, 1> kKeys = {"expires_unix_ms"};
  ASSIGN_OR_RETURN(const std::string answer,
                   session.link().Request(method, HoldTarget(id), body, 0));
  const auto fields = wire::BodyFields::Read(answer, kKeys);
  if (expires_unix_ms != nullptr && fields) *expires_unix_ms = fields->Number("expires_unix_ms");
  return {};
}

}  // namespace
}  // namespace gantry::client

using namespace gantry;          // NOLINT: the functions below cannot be in a namespace
using namespace gantry::client;  // NOLINT

gantry_error* gantry_notify(gantry_client* client, const char* peer, const gantry_message* message,
                            uint64_t deadline_ms, char** id) {
  return EnterObject(client, [&]() -> Status {
    static constexpr std::array<std::string_view, 1> kKeys = {"id"};
    if (message == nullptr) {
      return Fail(ErrorCode::kInvalidArgument, "the message is NULL", {}, "message");
    }
    RETURN_IF_ERROR(CheckMessage(*message));
    if (message->request_id != nullptr && !IsUtf8(message->request_id)) {
      return Fail(ErrorCode::kInvalidArgument, "it is not UTF-8", {}, "request_id");
    }
    WorkloadSession& session = *client->session;
    const std::string body = NotificationBody(session.link().workload(),
                                              peer == nullptr ? "" : peer, *message, deadline_ms);
    ASSIGN_OR_RETURN(const std::string answer,
                     session.link().Request("POST", "/v1/notifications", body, 0));
    const auto fields = wire::BodyFields::Read(answer, kKeys);
    if (id == nullptr) return {};
    char* text = ::strdup(fields ? fields->Text("id").c_str() : "");
    if (text == nullptr) throw std::bad_alloc();
    *id = text;
    return {};
  });
}

gantry_error* gantry_hold_put(gantry_client* client, const char* id, const gantry_hold_spec* spec,
                              uint64_t* expires_unix_ms) {
  return EnterObject(client, [&]() -> Status {
    RETURN_IF_ERROR(CheckId(id));
    if (spec == nullptr) return Fail(ErrorCode::kInvalidArgument, "the hold is NULL", {}, "spec");
    ASSIGN_OR_RETURN(const std::string body, HoldBody(client->session->link().workload(), *spec));
    RETURN_IF_ERROR(client->session->memory().sleep().CheckHeld(*spec));
    return SendHoldRequest(*client->session, "PUT", id, body, expires_unix_ms);
  });
}

gantry_error* gantry_hold_extend(gantry_client* client, const char* id, uint64_t ttl_ms,
                                 uint64_t* expires_unix_ms) {
  return EnterObject(client, [&]() -> Status {
    RETURN_IF_ERROR(CheckId(id));
    return SendHoldRequest(*client->session, "PATCH", id,
                           HoldExtensionBody(client->session->link().workload(), ttl_ms),
                           expires_unix_ms);
  });
}

gantry_error* gantry_hold_release(gantry_client* client, const char* id, int* ended) {
  return EnterObject(client, [&]() -> Status {
    RETURN_IF_ERROR(CheckId(id));
    const std::string target =
        HoldTarget(id) + "?workload=" + UrlEscape(client->session->link().workload());
    ASSIGN_OR_RETURN(const std::string answer,
                     client->session->link().Request("DELETE", target, "", 0));
    if (ended != nullptr) *ended = answer.empty();  // else it says who reads
    return {};
  });
}
