#include "connectors/nixl/agent/agent_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "connectors/nixl/agent/layout_request.h"
#include "lib/base/name.h"

namespace gantry::nixl {
namespace {

TEST(AgentCard, ComesBackAsItWasWritten) {
  const AgentCard card{"agent \"one\"", "nixl-one", "pod-a", "boot", "10.0.0.1:7000"};
  const auto read = ReadAgentCard(TextOf(card));
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, card);
}

TEST(AgentCard, OfAnotherVersionOrShapeIsRefused) {
  const std::string text = TextOf(AgentCard{"one", "nixl-one", "pod-a", "boot", "10.0.0.1:7000"});
  for (const std::string& other :
       {std::string("{}"), std::string("[1]"), text.substr(1),
        "{\"gantry\":2," + text.substr(text.find("\"agent\"")),
        TextOf(AgentCard{"one", "nixl one", "pod-a", "", ""}),
        TextOf(AgentCard{"one", "nixl-one", "../pod", "", ""}),
        TextOf(AgentCard{"one", "nixl-one", "pod-a", std::string(200, 'n'), ""})}) {
    EXPECT_FALSE(ReadAgentCard(other)) << other;
  }
}

TEST(MemoryCard, ComesBackAsItWasWritten) {
  const MemoryCard card{"m0.7", 0x7fff00001000, 1 << 30};
  const auto read = ReadMemoryCard(TextOf(card));
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, card);
}

TEST(MemoryCard, ThatWrapsAroundOrIsEmptyIsRefused) {
  EXPECT_FALSE(ReadMemoryCard(TextOf(MemoryCard{"m0.7", UINT64_MAX - 10, 20})));
  EXPECT_FALSE(ReadMemoryCard(TextOf(MemoryCard{"m0.7", 4096, 0})));
  EXPECT_FALSE(ReadMemoryCard(TextOf(MemoryCard{"m/0", 4096, 1})));
}

TEST(WorkloadOf, IsANameForEveryAgentAndItsOwn) {
  EXPECT_EQ(WorkloadOf("3f2e-uuid"), "nixl-3f2e-uuid");
  for (const std::string& agent :
       {std::string("a b"), std::string("a/b"), std::string("a c"), std::string(500, 'x'),
        std::string("\0\xff", 2), std::string()}) {
    EXPECT_TRUE(CheckName(WorkloadOf(agent), "workload")) << WorkloadOf(agent);
    EXPECT_NE(WorkloadOf(agent), WorkloadOf(agent + " "));
    EXPECT_TRUE(WorkloadOf(agent).starts_with("nixl+"));
  }
}

TEST(LayoutRequest, ComesBackAsItWasWritten) {
  const std::vector<std::string> buffers = {"m1.0", "m1.1"};
  const std::string text = TextOf(65536, buffers);
  EXPECT_TRUE(IsLayoutRequest(text));
  const auto read = ReadLayoutRequest(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, (LayoutRequest{65536, buffers}));
}

TEST(LayoutRequest, WithoutALengthOrWithTooManyBuffersIsRefused) {
  EXPECT_FALSE(ReadLayoutRequest(TextOf(0, std::vector<std::string>{"m"})));
  EXPECT_FALSE(ReadLayoutRequest(TextOf(4096, std::vector<std::string>{})));
  EXPECT_FALSE(ReadLayoutRequest(TextOf(4096, std::vector<std::string>{"a/b"})));
  EXPECT_FALSE(
      ReadLayoutRequest(TextOf(4096, std::vector<std::string>(kLayoutBuffersMax + 1, "m"))));
  EXPECT_FALSE(ReadLayoutRequest("GNL1"));
}

}  // namespace
}  // namespace gantry::nixl
