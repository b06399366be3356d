#include "connectors/nixl/agent/message_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "client/include/gantry_messages.h"
#include "connectors/nixl/agent/agent_card.h"

namespace gantry::nixl {
namespace {

using ::testing::Each;
using ::testing::Le;
using ::testing::Pair;
using ::testing::SizeIs;

std::string Text(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
  return text;
}

TEST(MessageParts, ComeBackInAnyOrder) {
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{65'000}, size_t{65'536}, size_t{1} << 20}) {
    auto parts = SplitMessage("one", Text(bytes), 7);
    ASSERT_TRUE(parts);
    EXPECT_THAT(*parts, Each(SizeIs(Le(GANTRY_MESSAGE_BYTES_MAX))));
    std::reverse(parts->begin(), parts->end());
    MessageJoiner joiner;
    for (size_t i = 0; i < parts->size(); ++i) {
      const auto joined = joiner.Join("pod-a", WorkloadOf("one"), (*parts)[i]);
      ASSERT_TRUE(joined);
      ASSERT_EQ(joined->has_value(), i + 1 == parts->size());
      if (joined->has_value()) {
        EXPECT_THAT(**joined, Pair("one", Text(bytes)));
      }
    }
    EXPECT_EQ(joiner.bytes(), 0);
  }
}

TEST(MessageParts, OfSeveralMessagesAreKeptApart) {
  const auto one = *SplitMessage("one", Text(100'000), 1);
  const auto two = *SplitMessage("one", std::string(100'000, 'x'), 2);
  MessageJoiner joiner;
  EXPECT_FALSE(*joiner.Join("pod-a", WorkloadOf("one"), one[0]));
  EXPECT_FALSE(*joiner.Join("pod-a", WorkloadOf("one"), two[0]));
  EXPECT_FALSE(*joiner.Join("pod-b", WorkloadOf("one"), one[1]));  // of another sidecar
  EXPECT_THAT(**joiner.Join("pod-a", WorkloadOf("one"), one[1]), Pair("one", Text(100'000)));
  EXPECT_THAT(**joiner.Join("pod-a", WorkloadOf("one"), two[1]),
              Pair("one", std::string(100'000, 'x')));
}

TEST(MessageParts, OfAnotherAgentThanTheirSenderAreRefused) {
  const auto parts = *SplitMessage("one", "text", 1);
  EXPECT_FALSE(MessageJoiner().Join("pod-a", WorkloadOf("two"), parts[0]));
}

TEST(MessageParts, ThatDoNotFitAreRefused) {
  auto parts = *SplitMessage("one", Text(100'000), 1);
  MessageJoiner joiner;
  EXPECT_FALSE(*joiner.Join("pod-a", WorkloadOf("one"), parts[0]));
  EXPECT_FALSE(joiner.Join("pod-a", WorkloadOf("one"), parts[0])) << "the same once more";
  std::string other = parts[1];
  other[20] = 3;  // their number
  EXPECT_FALSE(joiner.Join("pod-a", WorkloadOf("one"), other));
  EXPECT_FALSE(joiner.Join("pod-a", WorkloadOf("one"), parts[1].substr(0, 20)));
  EXPECT_FALSE(joiner.Join("pod-a", WorkloadOf("one"), "GNX2" + parts[1].substr(4)));
}

TEST(MessageParts, KeepNoMoreThanALimitOfHalfMessages) {
  MessageJoiner joiner;
  for (uint64_t id = 0; id < 6'000; ++id) {
    const auto parts = *SplitMessage("one", std::string(100'000, 'x'), id);
    EXPECT_FALSE(*joiner.Join("pod-a", WorkloadOf("one"), parts[0]));
  }
  EXPECT_LE(joiner.bytes(), size_t{64} << 20);
  EXPECT_GT(joiner.bytes(), size_t{48} << 20);
}

TEST(MessageParts, WithoutBytesAreCountedToo) {
  std::string empty = SplitMessage("one", std::string(100'000, 'x'), 0)->at(0).substr(0, 27);
  MessageJoiner joiner;
  for (uint32_t id = 1; id < 100'000; ++id) {
    std::memcpy(&empty[8], &id, sizeof(id));
    EXPECT_FALSE(joiner.Join("pod-a", WorkloadOf("one"), empty));
  }
  EXPECT_GT(joiner.bytes(), 100'000 * sizeof(std::string));
  EXPECT_LE(joiner.bytes(), size_t{64} << 20);
}

TEST(MessageParts, OfTooLongATextAreNotMade) {
  EXPECT_FALSE(SplitMessage("one", std::string(kMessageBytesMax + 1, 'x'), 1));
}

}  // namespace
}  // namespace gantry::nixl
