// client/include/gantry_messages.h: what is sent, what comes back, what is refused here.
#include <nlohmann/json.hpp>

#include "client/include/gantry_messages.h"
#include "tests/client/client_objects.h"

namespace gantry::client {
namespace {

using Json = nlohmann::json;

class GantryCMessages : public ::testing::Test {
 protected:
  // The body of the last request that went to `target`.
  Json Sent(const std::string& method, const std::string& target) {
    const auto requests = it_.sidecar.requests();
    for (auto request = requests.rbegin(); request != requests.rend(); ++request) {
      if (request->method != method || request->target != target) continue;
      return Json::parse(request->body, nullptr, false);
    }
    ADD_FAILURE() << "nothing was sent to " << method << " " << target;
    return {};
  }
  size_t sent() { return it_.sidecar.requests().size(); }

  OpenClient it_;
};

TEST_F(GantryCMessages, ANotificationSaysEverything) {
  it_.sidecar.On("/v1/notifications",
                 [](const FakeRequest&) { return FakeSidecar::Json(202, R"({"id":"n-1"})"); });
  const gantry_message message = {"decode@00000000000000ff", "a\0b", 3, "r-17"};
  char* id = nullptr;
  ASSERT_OK(gantry_notify(it_.client, "pod-b", &message, 500, &id));
  EXPECT_STREQ(id, "n-1");
  gantry_free(id);
  EXPECT_EQ(Sent("POST", "/v1/notifications"), Json::parse(R"({"workload":"w","peer":"pod-b",
      "to":"decode@00000000000000ff","message":"YQBi","request_id":"r-17","deadline_ms":500})"));
  const gantry_message empty = {"decode", nullptr, 0, nullptr};
  ASSERT_OK(gantry_notify(it_.client, nullptr, &empty, 0, nullptr));
  EXPECT_EQ(Sent("POST", "/v1/notifications"),
            Json::parse(R"({"workload":"w","peer":"","to":"decode","message":""})"));
}

TEST_F(GantryCMessages, MessagesThatMakeNoSenseAreRefusedHere) {
  const size_t before = sent();
  const std::string large(GANTRY_MESSAGE_BYTES_MAX + 1, 'x');
  const gantry_message nobody = {nullptr, "x", 1, nullptr};
  const gantry_message nothing = {"decode", nullptr, 1, nullptr};
  const gantry_message much = {"decode", large.data(), large.size(), nullptr};
  const gantry_message no_text = {"decode", "x", 1, "r-\xc3"};
  for (const gantry_message* message :
       {static_cast<const gantry_message*>(nullptr), &nobody, &nothing, &much, &no_text}) {
    EXPECT_EQ(CodeOf(gantry_notify(it_.client, "p", message, 0, nullptr)), "invalid_argument");
  }
  EXPECT_EQ(CodeOf(gantry_notify(nullptr, "p", &nobody, 0, nullptr)), "invalid_argument");
  EXPECT_EQ(sent(), before);
}

TEST_F(GantryCMessages, AHoldIsPutExtendedAndReleased) {
  it_.sidecar.On("/v1/holds/", [](const FakeRequest& request) {
    if (request.method != "DELETE") return FakeSidecar::Json(200, R"({"expires_unix_ms":1234})");
    const bool is_read = request.target.find("busy") != std::string::npos;
    return is_read ? FakeSidecar::Json(202, R"({"state":"ending"})") : FakeSidecar::Json(204, "");
  });
  const char* const layers[] = {"k.0", "k.1"};
  const uint64_t blocks[] = {3, 4, 18446744073709551615u};
  const gantry_hold_group groups[] = {{layers, 2, blocks, 3}, {&layers[1], 1, nullptr, 0}};
  const gantry_hold_spec spec = {groups, 2, 60'000, 4};
  uint64_t expires = 0;
  ASSERT_OK(gantry_hold_put(it_.client, "r-17", &spec, &expires));
  EXPECT_EQ(expires, 1234u);
  EXPECT_EQ(Sent("PUT", "/v1/holds/r-17"), Json::parse(R"({"workload":"w","groups":[
      {"buffers":["k.0","k.1"],"blocks":[3,4,18446744073709551615]},{"buffers":["k.1"]}],
      "ttl_ms":60000,"expected_consumers":4})"));
  expires = 0;
  ASSERT_OK(gantry_hold_extend(it_.client, "r-17", 30'000, &expires));
  EXPECT_EQ(expires, 1234u);
  EXPECT_EQ(Sent("PATCH", "/v1/holds/r-17"), Json::parse(R"({"workload":"w","ttl_ms":30000})"));
  int ended = 0;
  ASSERT_OK(gantry_hold_release(it_.client, "r-17", &ended));
  EXPECT_EQ(ended, 1);
  ASSERT_OK(gantry_hold_release(it_.client, "busy", &ended));
  EXPECT_EQ(ended, 0);
  ASSERT_OK(gantry_hold_release(it_.client, "busy", nullptr));
}

TEST_F(GantryCMessages, HoldsThatMakeNoSenseAreRefusedHere) {
  const size_t before = sent();
  const char* const name = "k";
  const char* const no_name = nullptr;
  const gantry_hold_group good = {&name, 1, nullptr, 0};
  const gantry_hold_group no_buffers = {nullptr, 1, nullptr, 0};
  const gantry_hold_group a_null_buffer = {&no_name, 1, nullptr, 0};
  const gantry_hold_group no_blocks = {&name, 1, nullptr, 2};
  for (const gantry_hold_group* group : {&no_buffers, &a_null_buffer, &no_blocks}) {
    const gantry_hold_spec spec = {group, 1, 1000, 0};
    EXPECT_EQ(CodeOf(gantry_hold_put(it_.client, "h", &spec, nullptr)), "invalid_argument");
  }
  const gantry_hold_spec spec = {&good, 1, 1000, 0}, empty = {};
  EXPECT_EQ(CodeOf(gantry_hold_put(it_.client, "h", &empty, nullptr)), "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_hold_put(it_.client, "h", nullptr, nullptr)), "invalid_argument");
  const std::string too_long(513, 'x');
  for (const char* id : {static_cast<const char*>(nullptr), "", too_long.c_str(), "\xff"}) {
    EXPECT_EQ(CodeOf(gantry_hold_put(it_.client, id, &spec, nullptr)), "invalid_argument");
    EXPECT_EQ(CodeOf(gantry_hold_extend(it_.client, id, 1, nullptr)), "invalid_argument");
    EXPECT_EQ(CodeOf(gantry_hold_release(it_.client, id, nullptr)), "invalid_argument");
  }
  EXPECT_EQ(sent(), before);
}

TEST_F(GantryCMessages, ATransferNamesItsHoldAndItsNotification) {
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(it_.Register("b", 0, 10, &buffer));
  const char* remote = "pod-a/prefill/k.0";
  const gantry_range range = {0, 0, 0, 0, 7};
  const gantry_message message = {"prefill", "done", 4, nullptr};
  const uint64_t consumers = 0;
  gantry_transfer_spec spec = {};
  spec.local = &buffer;
  spec.local_count = 1;
  spec.remote = &remote;
  spec.remote_count = 1;
  spec.ranges = &range;
  spec.range_count = 1;
  spec.hold = "r-17";
  spec.hold_consumers = &consumers;
  spec.notify = &message;
  gantry_transfer* transfer = nullptr;
  ASSERT_OK(gantry_transfer_submit(it_.client, &spec, 0, &transfer));
  std::string body;
  for (const FakeRequest& request : it_.sidecar.requests()) {
    if (request.target.starts_with("/v1/transfers")) body = request.body;
  }
  const Json sent = Json::from_cbor(body);
  EXPECT_EQ(sent["hold"], "r-17");
  EXPECT_EQ(sent["hold_consumers"], 0);
  EXPECT_EQ(sent["notify"], Json::parse(R"({"to":"prefill","message":"ZG9uZQ=="})"));
  gantry_transfer_destroy(transfer);
  gantry_buffer_destroy(buffer);
}

}  // namespace
}  // namespace gantry::client
