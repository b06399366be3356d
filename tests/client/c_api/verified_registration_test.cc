// gantry_buffers_register_verified over a sidecar that only answers: what is sent and in which
// order, and what is left behind when a step fails.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/include/gantry_memory.h"
#include "lib/base/base64.h"
#include "tests/client/client_objects.h"

namespace gantry::client {
namespace {

using nlohmann::json;

constexpr size_t kBytes = 1000;

class VerifiedRegistration : public ::testing::Test {
 protected:
  VerifiedRegistration() : data_(static_cast<char*>(gantry_arena_data(it_.arena))) {
    for (size_t i = 0; i < kBytes; ++i) data_[i] = static_cast<char>(i * 7 % 251);
    before_.assign(data_, kBytes);
  }
  gantry_error* Register(gantry_buffer** buffer) {
    const gantry_piece piece = {data_, kBytes};
    gantry_buffer_spec spec = {};
    spec.name = "kv";
    spec.pieces = &piece;
    spec.piece_count = 1;
    return gantry_buffers_register_verified(it_.client, &spec, 1, buffer);
  }
  std::string Now() const { return {data_, kBytes}; }
  // How the fake answers registrations, and how their :resume.
  void Answer(FakeSidecar::Handler on_register, FakeSidecar::Handler on_resume) {
    it_.sidecar.On("/v1/buffers", [on_register = std::move(on_register),
                                   on_resume = std::move(on_resume)](const FakeRequest& request) {
      if (request.target == "/v1/buffers") return on_register(request);
      if (request.target == "/v1/buffers:resume") return on_resume(request);
      return FakeSidecar::Json(200, R"({"id":"b1","peers":[]})");
    });
  }
  static std::string Registered() {
    return FakeSidecar::Json(
        201, R"({"buffers":[{"id":"b1","name":"kv","generation":"0123456789abcdef"}]})");
  }
  // "POST /v1/buffers" and so on, since the client was opened.
  std::vector<std::string> Asked() const {
    std::vector<std::string> asked;
    for (const FakeRequest& request : it_.sidecar.requests()) {
      if (request.target.starts_with("/v1/buffers")) {
        asked.push_back(request.method + " " + request.target.substr(0, request.target.find('?')));
      }
    }
    return asked;
  }

  OpenClient it_;
  char* const data_;
  std::string before_;
};

TEST_F(VerifiedRegistration, NoncesAreThereWhileItIsAskedAndGoneBeforeItIsResumed) {
  std::string in_resume;
  bool nonces_there = false;
  Answer(
      [&](const FakeRequest& request) {
        const json places = json::parse(request.body)["buffers"][0]["verify"];
        nonces_there = places.size() == 2 && places[1]["offset"] == kBytes - 16;
        for (const json& place : places) {
          const std::string nonce = ParseBase64(place["nonce"].get<std::string>()).value();
          nonces_there = nonces_there && nonce.size() == 16 &&
                         Now().compare(place["offset"].get<size_t>(), 16, nonce) == 0;
        }
        return Registered();
      },
      [&](const FakeRequest& request) {
        in_resume = Now();
        EXPECT_EQ(json::parse(request.body), json::parse(R"({"workload":"w","buffers":["kv"]})"));
        return FakeSidecar::Json(200, R"({"resumed":["kv"]})");
      });
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(Register(&buffer));
  EXPECT_TRUE(nonces_there);
  EXPECT_EQ(in_resume, before_);
  EXPECT_EQ(Now(), before_);
  EXPECT_EQ(gantry_buffer_is_registered(buffer), 1);
  gantry_buffer_destroy(buffer);
}

TEST_F(VerifiedRegistration, ARefusalIsPassedOnAndTheBytesAreRestored) {
  it_.sidecar.On("/v1/buffers", [](const FakeRequest&) {
    return FakeSidecar::Problem(422, "verification_failed", "other bytes");
  });
  gantry_buffer* buffer = nullptr;
  EXPECT_EQ(CodeOf(Register(&buffer)), "verification_failed");
  EXPECT_EQ(buffer, nullptr);
  EXPECT_EQ(Now(), before_);
  EXPECT_EQ(Asked(), (std::vector<std::string>{"POST /v1/buffers"}));
}

TEST_F(VerifiedRegistration, AnAnswerThatCannotBeReadOrNeverComes) {
  for (const char* answer : {"{}", "nonsense", ""}) {
    it_.sidecar.On("/v1/buffers", [answer](const FakeRequest&) -> std::string {
      return *answer == '\0' ? std::string() : FakeSidecar::Json(201, answer);
    });
    gantry_buffer* buffer = nullptr;
    EXPECT_NE(CodeOf(Register(&buffer)), "") << answer;
    EXPECT_EQ(Now(), before_) << answer;
  }
}

TEST_F(VerifiedRegistration, ABufferThatCannotBeResumedIsUnregistered) {
  Answer([](const FakeRequest&) { return Registered(); },
         [](const FakeRequest&) {
           return FakeSidecar::Problem(500, "device_error", "not mapped any more");
         });
  gantry_buffer* buffer = nullptr;
  EXPECT_EQ(CodeOf(Register(&buffer)), "device_error");
  EXPECT_EQ(buffer, nullptr);
  EXPECT_EQ(Now(), before_);
  const std::vector<std::string> asked = Asked();
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_TRUE(asked[2].starts_with("DELETE /v1/buffers/")) << asked[2];
}

}  // namespace
}  // namespace gantry::client
