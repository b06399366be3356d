#include "bench/bench_notify.h"

#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "bench/bench_stand.h"
#include "bench/sample_statistics.h"
#include "gantryctl/json_field.h"
#include "gantryctl/size_text.h"
#include "gantryctl/text_table.h"
#include "lib/base/base64.h"
#include "lib/base/clock.h"
#include "lib/base/thread.h"
#include "lib/http/reply_problem.h"
#include "lib/http/unix_http.h"

namespace gantry::bench {
namespace {

using gantryctl::CountOf;
using gantryctl::FormatFixed;
using gantryctl::MemberOf;
using gantryctl::NumberOf;
using gantryctl::TextOf;
using gantryctl::TextTable;

constexpr uint64_t kNotifiedBlockBytes = 4096;
constexpr uint64_t kNotifiedBufferBytes = 1 << 20;
constexpr size_t kMessageBytes = 64;
constexpr int kWarmUpRoundTrips = 200;

double MicrosSince(TimePoint start) { return 1e6 * SecondsBetween(start, Clock::now()); }

Result<std::string> PostTo(http::UnixHttp& http, std::string_view target,
                           const nlohmann::json& body) {
  const std::string text = body.dump();
  return http::BodyOrProblem(http.Send(
      {.method = "POST", .target = target, .body = text, .timeout = milliseconds(30'000)}));
}

// A workload that follows its events.
class Reader {
 public:
  Reader(http::UnixHttp& http, std::string workload)
      : http_(http), workload_(std::move(workload)) {}

  // Returns when there is an event of this type; others are passed over.
  Result<nlohmann::json> Await(const std::string& type) {
    for (;;) {
      const nlohmann::json body = {
          {"workload", workload_}, {"cursor", cursor_}, {"wait_ms", 10'000}};
      ASSIGN_OR_RETURN(const std::string answer, PostTo(http_, "/v1/completions:poll", body));
      const auto page = nlohmann::json::parse(answer, nullptr, false);
      const bool is_new = CountOf(page, "cursor") > cursor_;
      cursor_ = CountOf(page, "cursor");
      for (const nlohmann::json& event : MemberOf(page, "events")) {
        if (TextOf(event, "type") == type) return event;
      }
      if (!is_new) return Fail(ErrorCode::kDeadlineExceeded, "no event " + type + " within 10 s");
    }
  }

 private:
  http::UnixHttp& http_;
  const std::string workload_;
  uint64_t cursor_ = 0;
};

// Sends, and reads the outcome: there and back over the peer API.
class Sender {
 public:
  explicit Sender(http::UnixHttp& http)
      : http_(http), outcomes_(http, BenchStand::kLocalWorkload) {}

  Status Post() {
    const nlohmann::json body = {{"workload", BenchStand::kLocalWorkload},
                                 {"peer", BenchSidecars::kNames[1]},
                                 {"to", BenchStand::kRemoteWorkload},
                                 {"message", Base64Of(std::string(kMessageBytes, 'x'))}};
    RETURN_IF_ERROR(PostTo(http_, "/v1/notifications", body));
    return {};
  }
  // What of it the peer API took, in microseconds.
  Result<double> AwaitOutcome() {
    ASSIGN_OR_RETURN(const nlohmann::json event, outcomes_.Await("notification_outcome"));
    const nlohmann::json& delivery = MemberOf(event, "delivery");
    if (delivery.value("delivered", false)) return NumberOf(delivery, "peer_us");
    return Fail(ErrorCode::kInternal, "a notification was not delivered: " + event.dump());
  }

 private:
  http::UnixHttp& http_;
  Reader outcomes_;
};

nlohmann::json ThreeQuantiles(const Samples& samples) {
  return {{"p50", samples.Percentile(0.5)},
          {"p90", samples.Percentile(0.9)},
          {"p99", samples.Percentile(0.99)}};
}

struct RoundTripTimes {
  Samples all;
  Samples peer_api;
};

Result<RoundTripTimes> RoundTrips(Sender& sender, Reader& receiver, int calls, milliseconds gap) {
  RoundTripTimes times;
  for (int i = 0; i < calls; ++i) {
    if (gap.count() > 0) std::this_thread::sleep_for(gap);
    const TimePoint start = Clock::now();
    RETURN_IF_ERROR(sender.Post());
    ASSIGN_OR_RETURN(const double peer_api, sender.AwaitOutcome());
    times.all.Add(MicrosSince(start));
    times.peer_api.Add(peer_api);
    RETURN_IF_ERROR(receiver.Await("notification"));  // which makes room
  }
  return times;
}

Result<Samples> OneWays(Sender& sender, Reader& receiver, int calls) {
  Samples samples;
  for (int i = 0; i < calls; ++i) {
    Result<nlohmann::json> received = Fail(ErrorCode::kInternal, "nothing was received");
    TimePoint arrived;
    ASSIGN_OR_RETURN(std::jthread reading, StartThread("gantry-bench", [&] {
                       received = receiver.Await("notification");
                       arrived = Clock::now();
                     }));
    std::this_thread::sleep_for(milliseconds(1));  // it waits by then
    const TimePoint start = Clock::now();
    RETURN_IF_ERROR(sender.Post());
    reading.join();
    if (!received) return Fail(received.error());
    samples.Add(1e6 * SecondsBetween(start, arrived));
    if (const auto outcome = sender.AwaitOutcome(); !outcome) return Fail(outcome.error());
  }
  return samples;
}

}  // namespace

Result<nlohmann::json> MeasureNotifications(const BenchOptions& options) {
  ASSIGN_OR_RETURN(const BenchStand stand,
                   BenchStand::Build(options, kNotifiedBufferBytes, kNotifiedBlockBytes));
  http::UnixHttp here(stand.sidecars->ApiSocket(0));
  http::UnixHttp there(stand.sidecars->ApiSocket(1));
  Sender sender(here);
  Reader receiver(there, BenchStand::kRemoteWorkload);

  RETURN_IF_ERROR(RoundTrips(sender, receiver, kWarmUpRoundTrips, milliseconds(0)));
  ASSIGN_OR_RETURN(const RoundTripTimes fast,
                   RoundTrips(sender, receiver, options.calls, milliseconds(0)));
  ASSIGN_OR_RETURN(
      const RoundTripTimes paced,
      RoundTrips(sender, receiver, std::min(options.calls, 500), milliseconds(options.gap_ms)));
  ASSIGN_OR_RETURN(const Samples one_way, OneWays(sender, receiver, std::min(options.calls, 1000)));
  ASSIGN_OR_RETURN(
      const std::string answer,
      stand.local->Request("GET", "/v1/peers/" + std::string(BenchSidecars::kNames[1]), ""));
  const auto peer = nlohmann::json::parse(answer, nullptr, false);
  return nlohmann::json{{"peer_api", options.transport == "tcp" ? "tcp" : "unix"},
                        {"message_bytes", kMessageBytes},
                        {"calls", options.calls},
                        {"gap_ms", options.gap_ms},
                        {"round_trip_us", ThreeQuantiles(fast.all)},
                        {"peer_api_round_trip_us", ThreeQuantiles(fast.peer_api)},
                        {"paced_round_trip_us", ThreeQuantiles(paced.all)},
                        {"paced_peer_api_round_trip_us", ThreeQuantiles(paced.peer_api)},
                        {"one_way_us", ThreeQuantiles(one_way)},
                        {"peer_ping_us", CountOf(peer, "rtt_us")}};
}

std::string NotificationsText(const nlohmann::json& measured) {
  TextTable table({"", ">p50", ">p90", ">p99"});
  const auto add = [&](const std::string& name, const char* key) {
    std::vector<std::string> cells = {name};
    for (const char* quantile : {"p50", "p90", "p99"}) {
      cells.push_back(FormatFixed(NumberOf(MemberOf(measured, key), quantile), 1));
    }
    table.Add(std::move(cells));
  };
  add("request until its sender reads the outcome", "round_trip_us");
  add("of it over the peer API, there and back", "peer_api_round_trip_us");
  const std::string paced = std::to_string(CountOf(measured, "gap_ms")) + " ms between";
  add("the first, with " + paced, "paced_round_trip_us");
  add("the second, with " + paced, "paced_peer_api_round_trip_us");
  add("request until the receiver reads it", "one_way_us");
  return "notifications of " + std::to_string(CountOf(measured, "message_bytes")) +
         " bytes between two sidecars, whose peer API is on " +
         (TextOf(measured, "peer_api") == "tcp" ? "TCP (loopback)" : "a Unix socket") + ", us\n" +
         table.Text();
}

}  // namespace gantry::bench
