#include "sidecar/api/events_endpoint.h"

#include <charconv>

#include "lib/wire/request_bodies.h"
#include "sidecar/api/caller.h"
#include "sidecar/api/request_reading.h"
#include "sidecar/api/transfer_view.h"

namespace gantry::api {
namespace {

constexpr uint64_t kPollDefault = 256;
constexpr size_t kStreamPage = 256;
constexpr milliseconds kStreamPoll{500};  // how late a client that hung up is noticed
constexpr milliseconds kHeartbeat{10'000};

// One client's place in the log.
class EventStream {
 public:
  EventStream(engine::EventLog& events, AskedWaits::Wait wait, std::string workload,
              uint64_t generation, uint64_t cursor)
      : events_(events),
        wait_(std::move(wait)),
        workload_(std::move(workload)),
        generation_(generation),
        cursor_(cursor) {}

  bool Next(std::string* chunk) {
    if (!begun_) {
      begun_ = true;
      last_sent_ = Clock::now();
      *chunk += ": events follow\n\n";
      return true;
    }
    const TimePoint deadline = Clock::now() + kStreamPoll;
    // What was written before: the client took it, or will go on from where it was.
    const engine::EventReader reader{workload_, generation_};
    events_.Acknowledge(reader, cursor_);
    const engine::EventLog::Page page = events_.Poll(reader, cursor_, kStreamPage, deadline);
    cursor_ = page.cursor;
    if (page.lost > 0) {
      *chunk += "event: lost\ndata: {\"lost\":" + std::to_string(page.lost) + "}\n\n";
    }
    for (const engine::Event& event : page.events) Append(event, chunk);
    const TimePoint now = Clock::now();
    if (chunk->empty() && now < deadline) return false;  // the log was closed
    if (chunk->empty() && now - last_sent_ >= kHeartbeat) *chunk += ": still here\n\n";
    if (!chunk->empty()) last_sent_ = now;
    return true;
  }

 private:
  static void Append(const engine::Event& event, std::string* chunk) {
    wire::BodyWriter data(wire::BodyFormat::kJson);
    WriteEvent(event, &data);
    *chunk += "id: " + std::to_string(event.sequence) + "\nevent: ";
    *chunk += NameOf(event.type);
    *chunk += "\ndata: " + data.Take() + "\n\n";
  }

  engine::EventLog& events_;
  const AskedWaits::Wait wait_;  // a stream holds its thread
  const std::string workload_;
  const uint64_t generation_;
  uint64_t cursor_;
  bool begun_ = false;
  TimePoint last_sent_;
};

// Where the client left off: Last-Event-ID, else ?cursor=, else now.
Result<uint64_t> StreamCursor(const ApiDependencies& api, const http::Request& request) {
  const std::string_view last = request.last_event_id;
  if (!last.empty()) {
    uint64_t cursor = 0;
    const auto read = std::from_chars(last.data(), last.data() + last.size(), cursor);
    if (read.ec == std::errc() && read.ptr == last.data() + last.size()) return cursor;
    return Fail(ErrorCode::kInvalidArgument, "Last-Event-ID is no sequence number");
  }
  ASSIGN_OR_RETURN(const auto cursor, QueryNumber(request, "cursor"));
  return cursor.value_or(api.events.last_sequence());
}

}  // namespace

Result<http::Response> PollCompletions(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(const wire::PollBody body, wire::ReadPollBody(format, request.body));
  ASSIGN_OR_RETURN(const uint64_t generation, AuthorizeFor(api.workloads, request, body.workload));
  ASSIGN_OR_RETURN(const AskedWaits::Wait wait,
                   api.waits.Begin(request, body.workload, body.wait_ms));
  const engine::EventReader reader{body.workload, generation, body.has_transfers};
  api.events.Acknowledge(reader, body.acknowledge.value_or(body.cursor.value_or(0)));
  const uint64_t cursor = body.cursor.value_or(api.events.last_sequence());
  const engine::EventLog::Page page =
      api.events.Poll(reader, cursor, body.max.value_or(kPollDefault), wait.until());
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject().Key("events").BeginList();
  for (const engine::Event& event : page.events) WriteEvent(event, &writer);
  writer.EndList().Field("cursor", page.cursor).Field("lost", page.lost).EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> StreamEvents(const ApiDependencies& api, const http::Request& request) {
  const std::string workload = QueryText(request, "workload");
  if (workload.empty()) {
    RETURN_IF_ERROR(AuthorizeAny(api.workloads, request));
    return Fail(ErrorCode::kInvalidArgument, "the query parameter workload is missing",
                "add ?workload=<name>", "?workload");
  }
  ASSIGN_OR_RETURN(const uint64_t generation, AuthorizeFor(api.workloads, request, workload));
  ASSIGN_OR_RETURN(const uint64_t cursor, StreamCursor(api, request));
  ASSIGN_OR_RETURN(AskedWaits::Wait wait,
                   api.waits.Begin(request, workload, uint64_t{kStreamPoll.count()}));
  http::Response response;
  response.content_type = "text/event-stream";
  auto stream =
      std::make_shared<EventStream>(api.events, std::move(wait), workload, generation, cursor);
  response.stream = [stream](std::string* chunk) { return stream->Next(chunk); };
  return response;
}

}  // namespace gantry::api
