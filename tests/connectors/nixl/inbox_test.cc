#include "connectors/nixl/agent/inbox.h"

#include <gtest/gtest.h>

#include "lib/base/base64.h"

namespace gantry::nixl {
namespace {

std::string PageOf(const std::vector<std::string>& parts) {
  std::string events;
  for (const std::string& part : parts) {
    events += (events.empty() ? "" : ",");
    events += R"({"type":"notification","notification":{"from_peer":"two","from_workload":")" +
              WorkloadOf("agent") + R"(","message":")" + Base64Of(part) + R"("}})";
  }
  return R"({"events":[)" + events + "]}";
}

std::vector<std::string> PartsOf(size_t bytes, uint64_t id) {
  return *SplitMessage("agent", std::string(bytes, 'x'), id);
}

void Hear(Inbox& inbox, const std::vector<std::string>& parts) {
  inbox.Hear(PageOf(parts), [](const LayoutRequest&) {});
}

TEST(Inbox, IsFullAtItsLimitUntilItIsTaken) {
  Inbox inbox;
  uint64_t id = 0;
  for (size_t bytes = 0; bytes < Inbox::kBytesMax; bytes += 1 << 20) {
    EXPECT_FALSE(inbox.is_full());
    Hear(inbox, PartsOf(1 << 20, ++id));
  }
  EXPECT_TRUE(inbox.is_full());
  Notifications taken;
  inbox.TakeAll(taken);
  EXPECT_EQ(taken.size(), id);
  EXPECT_FALSE(inbox.is_full());
}

TEST(Inbox, CountsNotificationsWithoutBytes) {
  Inbox inbox;
  const std::vector<std::string> parts(4096, PartsOf(0, 1).front());
  int pages = 0;
  for (; !inbox.is_full() && pages < 1000; ++pages) Hear(inbox, parts);
  EXPECT_TRUE(inbox.is_full());
}

}  // namespace
}  // namespace gantry::nixl
