#include "lib/rpc/grpc_log.h"

#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "lib/base/log.h"

namespace gantry::rpc {
namespace {

// The one line that gRPC's message becomes; empty: none.
std::string Logged(log::Level least, const std::function<void()>& say) {
  log::Configure("grpc-log-test", least);
  TakeGrpcLog();
  gpr_log_verbosity_init();  // as it does when it is first used
  ::testing::internal::CaptureStderr();
  say();
  log::Flush();
  return ::testing::internal::GetCapturedStderr();
}

void SayError() {
  gpr_log("src/core/lib/surface/server.cc", 7, GPR_LOG_SEVERITY_ERROR, "a \"%s\"", "b");
}

void SayOfHandshake(const char* message) {
  gpr_log("src/core/tsi/ssl_transport_security.cc", 7, GPR_LOG_SEVERITY_ERROR, "%s", message);
}

// With a peer's certificate that has no name of a host it is what gRPC says of a good connection.
void SayThatNoHostIsNamed() { SayOfHandshake("No match found for server name: 10.0.0.1."); }

TEST(GrpcLog, AnErrorIsALineOfTheLog) {
  const std::string written = Logged(log::Level::kInfo, SayError);
  const auto line = nlohmann::json::parse(written);
  EXPECT_EQ(line["level"], "error");
  EXPECT_EQ(line["said"], "a \"b\"");
  EXPECT_EQ(line["file"], "src/core/lib/surface/server.cc");
  EXPECT_EQ(line["line"], 7);
}

TEST(GrpcLog, ACertificateWithoutAHostIsForDebugging) {
  EXPECT_EQ(Logged(log::Level::kInfo, SayThatNoHostIsNamed), "");
  const auto line = nlohmann::json::parse(Logged(log::Level::kDebug, SayThatNoHostIsNamed));
  EXPECT_EQ(line["level"], "debug");
  EXPECT_EQ(line["said"], "No match found for server name: 10.0.0.1.");
}

// A server with a limit of threads has to know: gRPC counts the refused one for ever.
TEST(GrpcLog, AThreadThatACallCannotHaveIsCountedAndSaidNowAndAgain) {
  const size_t before = CallThreadsRefused();
  const std::string written = Logged(log::Level::kInfo, [] {
    for (int i = 0; i < 100; ++i) {
      gpr_log("./src/cpp/thread_manager/thread_manager.cc", 42, GPR_LOG_SEVERITY_ERROR,
              "Could not create grpc_sync_server worker-thread");
    }
  });
  EXPECT_EQ(CallThreadsRefused(), before + 100);
  EXPECT_LE(std::count(written.begin(), written.end(), '\n'), 1);
}

// Of a peer that tries in a loop one line in ten seconds; of what fails otherwise one of its own.
TEST(GrpcLog, AHandshakeThatFailedIsAWarningNowAndAgain) {
  static int run = 0;  // a test that is repeated is of other failures
  ++run;
  for (const std::string failure : {"certificate verify failed", "http request"}) {
    const std::string said = failure + " in run " + std::to_string(run);
    const std::string written = Logged(log::Level::kInfo, [&] {
      for (int i = 0; i < 100; ++i) SayOfHandshake(said.c_str());
    });
    const auto line = nlohmann::json::parse(written);  // throws for more than one
    EXPECT_EQ(line["level"], "warning");
    EXPECT_EQ(line["said"], said);
    EXPECT_EQ(line["more_since_the_last_line"], 0);
  }
}

TEST(GrpcLog, OfManyKindsOfFailuresSomeShareALine) {
  const std::string written = Logged(log::Level::kInfo, [&] {
    for (int i = 0; i < 1000; ++i) SayOfHandshake(("failure " + std::to_string(i)).c_str());
  });
  EXPECT_LT(std::count(written.begin(), written.end(), '\n'), 40);
}

}  // namespace
}  // namespace gantry::rpc
