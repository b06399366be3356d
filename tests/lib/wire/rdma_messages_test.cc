// What peers tell of their RDMA devices: nothing is lost on the way, and nothing outside of its
// limits is taken.
#include "lib/wire/rdma_messages.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/lib/wire/malformed_message.h"

namespace gantry::wire {
namespace {

constexpr uint32_t k24Bits = 0xffffff;

Gid SomeGid() {
  Gid gid{};
  for (size_t i = 0; i < gid.size(); ++i) gid[i] = static_cast<uint8_t>(200 + i);
  return gid;
}

QueuePairAddress SomeAddress(uint32_t number) {
  return {number, 0xabcdef, 517, SomeGid(), 1024, 16};
}

void ExpectEqual(const QueuePairAddress& a, const QueuePairAddress& b) {
  EXPECT_EQ(a.number, b.number);
  EXPECT_EQ(a.packet_sequence, b.packet_sequence);
  EXPECT_EQ(a.lid, b.lid);
  EXPECT_EQ(a.gid, b.gid);
  EXPECT_EQ(a.mtu, b.mtu);
  EXPECT_EQ(a.reads_max, b.reads_max);
}

TEST(RdmaMessagesTest, DevicesArriveAsTheyWereTold) {
  proto::HelloReply message;
  EXPECT_TRUE(RdmaDevicesOf(message)->empty());
  const std::vector<RdmaDeviceAddress> told = {{"mlx5_0", SomeGid(), true, 1U << 31},
                                               {"ib1", {}, false}};
  ToMessage(told, &message);
  const auto devices = RdmaDevicesOf(message);
  ASSERT_TRUE(devices);
  ASSERT_EQ(devices->size(), 2u);
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ((*devices)[i].name, told[i].name);
    EXPECT_EQ((*devices)[i].gid, told[i].gid);
    EXPECT_EQ((*devices)[i].ethernet, told[i].ethernet);
    EXPECT_EQ((*devices)[i].message_bytes_max, told[i].message_bytes_max);
  }
}

TEST(RdmaMessagesTest, DevicesHaveLimits) {
  proto::HelloReply message;
  const std::vector<RdmaDeviceAddress> most(kRdmaDevicesMax,
                                            {std::string(64, 'n'), SomeGid(), true});
  ToMessage(most, &message);
  EXPECT_TRUE(RdmaDevicesOf(message));
  message.mutable_rdma_devices(3)->set_name(std::string(65, 'n'));
  ExpectMalformed(RdmaDevicesOf(message));
  message.mutable_rdma_devices(3)->set_name("");
  EXPECT_TRUE(RdmaDevicesOf(message));
  for (const size_t bytes : {0, 4, 15, 17}) {
    message.mutable_rdma_devices(3)->set_gid(std::string(bytes, 'g'));
    ExpectMalformed(RdmaDevicesOf(message));
  }
  message.clear_rdma_devices();
  ToMessage(most, &message);
  for (const uint32_t bytes : {0U, kMessageBytesMin, UINT32_MAX}) {
    message.mutable_rdma_devices(3)->set_message_bytes_max(bytes);
    EXPECT_TRUE(RdmaDevicesOf(message)) << bytes;
  }
  for (const uint32_t bytes : {1U, kMessageBytesMin - 1}) {
    message.mutable_rdma_devices(3)->set_message_bytes_max(bytes);
    ExpectMalformed(RdmaDevicesOf(message));
  }
  message.mutable_rdma_devices(3)->set_message_bytes_max(0);
  ToMessage({most.data(), 1}, &message);
  ExpectMalformed(RdmaDevicesOf(message));
}

proto::BufferDescriptor Describe(uint64_t length, const std::vector<RdmaChunk>& chunks) {
  proto::BufferDescriptor message;
  message.set_length(length);
  ToMessage(chunks, &message);
  return message;
}

TEST(RdmaMessagesTest, ChunksArriveAsTheyWereTold) {
  const std::vector<RdmaChunk> told = {{4096, 0x7f00'0000'0000, {1, UINT32_MAX}},
                                       {1, UINT64_MAX - 1, {0, 7}}};
  const auto chunks = RdmaChunksOf(Describe(4097, told));
  ASSERT_TRUE(chunks) << chunks.error().message;
  EXPECT_EQ(*chunks, told);
  EXPECT_TRUE(RdmaChunksOf(Describe(4097, {}))->empty()) << "rdma does not lead to it";
}

TEST(RdmaMessagesTest, ChunksCoverTheBufferAndNoMore) {
  const std::vector<std::vector<RdmaChunk>> malformed = {
      {{99, 0, {1}}},                             // too short
      {{101, 0, {1}}},                            // too long
      {{50, 0, {1}}, {51, 50, {1}}},              // together too long
      {{50, 0, {1}}, {UINT64_MAX, 50, {1}}},      // the sum wraps
      {{100, 0, {1}}, {0, 100, {1}}},             // of nothing
      {{100, UINT64_MAX - 99, {1}}},              // wraps the address space
      {{100, 0, {}}},                             // on no device
      {{50, 0, {1, 2}}, {50, 50, {1}}},           // on fewer than the first
      {{50, 0, {1}}, {50, 50, {1, 2}}},           // on more
      {{100, 0, std::vector<uint32_t>(65, 1)}}};  // on more than there may be
  for (size_t i = 0; i < malformed.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectMalformed(RdmaChunksOf(Describe(100, malformed[i])));
  }
  EXPECT_TRUE(RdmaChunksOf(Describe(100, {{100, UINT64_MAX - 100, {1}}})));
  EXPECT_TRUE(RdmaChunksOf(Describe(100, {{100, 0, std::vector<uint32_t>(64, 1)}})));
}

TEST(RdmaMessagesTest, KeysAreOfTheDevicesThatAreNamed) {
  proto::BufferDescriptor message = Describe(100, {{100, 0, {1, 2, 3}}});
  EXPECT_TRUE(RdmaDevicesOf(message)->empty()) << "of all";
  for (const uint32_t device : {0U, 5U, 63U}) message.add_rdma_devices(device);
  EXPECT_EQ(*RdmaDevicesOf(message), (std::vector<uint32_t>{0, 5, 63}));
  const std::vector<std::vector<uint32_t>> malformed = {
      {0, 1},                             // fewer than keys
      {0, 1, 2, 3},                       // more
      {0, 2, 1},    {1, 1, 2},            // which is whose
      {0, 1, 64},   {0, 1, UINT32_MAX}};  // beyond any
  for (const auto& devices : malformed) {
    message.clear_rdma_devices();
    for (const uint32_t device : devices) message.add_rdma_devices(device);
    ExpectMalformed(RdmaDevicesOf(message));
  }
  message.clear_rdma_chunks();
  ExpectMalformed(RdmaDevicesOf(message));
}

TEST(RdmaMessagesTest, ChunksAreCounted) {
  std::vector<RdmaChunk> chunks(kPeerChunksMax, RdmaChunk{1, 0, {1}});
  EXPECT_TRUE(RdmaChunksOf(Describe(chunks.size(), chunks)));
  chunks.push_back({1, 0, {1}});
  ExpectMalformed(RdmaChunksOf(Describe(chunks.size(), chunks)));
}

TEST(RdmaMessagesTest, RequestsArriveAsTheyWereMade) {
  const std::vector<QueuePairRequest> made = {{0, SomeAddress(1)}, {63, SomeAddress(k24Bits)}};
  proto::ConnectQueuePairsRequest message;
  ToMessage(made, &message);
  const auto requests = FromMessage(message);
  ASSERT_TRUE(requests);
  ASSERT_EQ(requests->size(), 2u);
  for (size_t i = 0; i < made.size(); ++i) {
    EXPECT_EQ((*requests)[i].device, made[i].device);
    ExpectEqual((*requests)[i].from, made[i].from);
  }
}

TEST(RdmaMessagesTest, GrantsArriveAsTheyWereGiven) {
  proto::ConnectQueuePairsReply message;
  ToMessage({UINT64_MAX, {SomeAddress(5), SomeAddress(6)}, 6'000}, &message);
  const auto grant = FromMessage(message);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->connection, UINT64_MAX);
  EXPECT_EQ(grant->lease_ms, 6'000u);
  ASSERT_EQ(grant->ends.size(), 2u);
  ExpectEqual(grant->ends[1], SomeAddress(6));
  message.set_lease_ms(UINT32_MAX);
  EXPECT_EQ(FromMessage(message)->lease_ms, 600'000u) << "nobody waits for weeks";
}

// Each breaks one number of a queue pair, or does not.
struct Change {
  std::function<void(proto::QueuePair*)> make;
  bool good = false;
};

std::vector<Change> Changes() {
  const auto gid_of = [](size_t bytes) {
    return [bytes](proto::QueuePair* pair) { pair->set_gid(std::string(bytes, 'g')); };
  };
  return {{[](auto* pair) { pair->set_number(k24Bits); }, true},
          {[](auto* pair) { pair->set_number(k24Bits + 1); }},
          {[](auto* pair) { pair->set_packet_sequence(k24Bits); }, true},
          {[](auto* pair) { pair->set_packet_sequence(UINT32_MAX); }},
          {[](auto* pair) { pair->set_packet_sequence(k24Bits + 1); }},
          {[](auto* pair) { pair->set_lid(UINT16_MAX); }, true},
          {[](auto* pair) { pair->set_lid(UINT16_MAX + 1); }},
          {[](auto* pair) { pair->set_mtu(256); }, true},
          {[](auto* pair) { pair->set_mtu(4096); }, true},
          {[](auto* pair) { pair->set_mtu(255); }},
          {[](auto* pair) { pair->set_mtu(0); }},
          {[](auto* pair) { pair->set_mtu(4097); }},
          {[](auto* pair) { pair->set_reads_max(0); }, true},
          {[](auto* pair) { pair->set_reads_max(65'535); }, true},
          {[](auto* pair) { pair->set_reads_max(65'536); }},
          {gid_of(16), true},
          {gid_of(15)},
          {gid_of(17)},
          {gid_of(0)}};
}

TEST(RdmaMessagesTest, EveryNumberOfAQueuePairIsChecked) {
  const std::vector<Change> changes = Changes();
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    proto::ConnectQueuePairsRequest request;
    ToMessage(std::vector<QueuePairRequest>{{0, SomeAddress(1)}, {1, SomeAddress(2)}}, &request);
    changes[i].make(request.mutable_queue_pairs(1));
    proto::ConnectQueuePairsReply reply;
    ToMessage({1, {SomeAddress(5), SomeAddress(6)}, 6'000}, &reply);
    changes[i].make(reply.mutable_queue_pairs(1));
    if (changes[i].good) {
      EXPECT_TRUE(FromMessage(request));
      EXPECT_TRUE(FromMessage(reply));
    } else {
      ExpectMalformed(FromMessage(request));
      ExpectMalformed(FromMessage(reply));
    }
  }
}

TEST(RdmaMessagesTest, AnEndThatWasNotMadeIsTold) {
  proto::ConnectQueuePairsReply reply;
  ToMessage({1, {{}, SomeAddress(6)}, 6'000}, &reply);
  EXPECT_EQ(reply.queue_pairs(0).ByteSizeLong(), 0u);
  const auto grant = FromMessage(reply);
  ASSERT_TRUE(grant);
  ASSERT_EQ(grant->ends.size(), 2u);
  EXPECT_EQ(grant->ends[0].number, 0u);
  EXPECT_EQ(grant->ends[1].number, SomeAddress(6).number);
}

TEST(RdmaMessagesTest, QueuePairsAndTheirDevicesAreCounted) {
  proto::ConnectQueuePairsRequest request;
  ExpectMalformed(FromMessage(request));
  std::vector<QueuePairRequest> most(kQueuePairsMax, {0, SomeAddress(1)});
  ToMessage(most, &request);
  EXPECT_TRUE(FromMessage(request));
  request.mutable_queue_pairs(0)->set_device(kRdmaDevicesMax);
  ExpectMalformed(FromMessage(request));
  request.mutable_queue_pairs(0)->set_device(0);
  ToMessage({most.data(), 1}, &request);
  ExpectMalformed(FromMessage(request));
  proto::ConnectQueuePairsReply reply;
  ToMessage({1, std::vector<QueuePairAddress>(kQueuePairsMax + 1, SomeAddress(1)), 1}, &reply);
  ExpectMalformed(FromMessage(reply));
}

}  // namespace
}  // namespace gantry::wire
