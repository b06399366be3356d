// Where nonces go, and that memory is afterwards what it was, also where it cannot be written.
#include "client/session/placed_nonces.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <numeric>
#include <optional>
#include <random>

#include "client/memory/sealed_memfd.h"
#include "tests/client/page_bytes.h"

namespace gantry::client {
namespace {

std::vector<ByteRange> Places(std::vector<uint64_t> pieces) { return NoncePlacesOf(pieces); }

TEST(NoncePlacesTest, BothEndsAndEverySeam) {
  EXPECT_EQ(Places({1000}), (std::vector<ByteRange>{{0, 16}, {984, 16}}));
  EXPECT_EQ(Places({1000, 500}), (std::vector<ByteRange>{{0, 16}, {992, 16}, {1484, 16}}));
  EXPECT_EQ(Places({1000, 3, 500}),
            (std::vector<ByteRange>{{0, 16}, {992, 16}, {1008, 3}, {1487, 16}}));
}

TEST(NoncePlacesTest, ShortBuffersAreAllNonce) {
  EXPECT_EQ(Places({1}), (std::vector<ByteRange>{{0, 1}}));
  EXPECT_EQ(Places({16}), (std::vector<ByteRange>{{0, 16}}));
  EXPECT_EQ(Places({17}), (std::vector<ByteRange>{{0, 16}, {16, 1}}));
  EXPECT_EQ(Places({33}), (std::vector<ByteRange>{{0, 16}, {17, 16}}));
  EXPECT_EQ(Places({1, 1, 1}), (std::vector<ByteRange>{{0, 3}}));
}

// Whatever the pieces: in order, disjoint, short enough, inside, and on each side of each seam.
TEST(NoncePlacesTest, OfRandomPieces) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint64_t> pieces(1 + random() % 8);
    for (uint64_t& bytes : pieces) bytes = 1 + random() % (random() % 2 == 0 ? 9 : 60);
    const uint64_t length = std::accumulate(pieces.begin(), pieces.end(), uint64_t{0});
    std::vector<bool> covered(length);
    uint64_t last = 0;
    for (const ByteRange& place : NoncePlacesOf(pieces)) {
      ASSERT_GE(place.offset, last);
      ASSERT_TRUE(place.length >= 1 && place.length <= wire::kNonceBytesMax);
      last = place.offset + place.length;
      ASSERT_LE(last, length);
      for (uint64_t i = 0; i < place.length; ++i) covered[place.offset + i] = true;
    }
    uint64_t begin = 0;
    for (const uint64_t bytes : pieces) {
      ASSERT_TRUE(covered[begin] && covered[begin + bytes - 1]) << "round " << round;
      begin += bytes;
    }
  }
}

class PlacedNoncesTest : public ::testing::Test {
 protected:
  std::shared_ptr<Arena> MakeArena(uint64_t bytes) {
    UniqueFd fd = CreateSealedMemfd("nonces", bytes).value();
    auto arena = Arena::Map(std::move(fd), bytes, nullptr, /*writable=*/true).value();
    for (uint64_t i = 0; i < bytes; ++i) arena->data()[i] = static_cast<std::byte>(random_());
    return arena;
  }
  static std::string Content(const Arena& arena) {
    return {reinterpret_cast<const char*>(arena.data()), arena.bytes()};
  }
  static BufferRequest Request(std::vector<ResolvedPiece> pieces) {
    BufferRequest request;
    request.pieces = std::move(pieces);
    return request;
  }

  std::mt19937 random_{7};
};

TEST_F(PlacedNoncesTest, EveryByteOfANonceDiffersUntilItIsRestored) {
  const auto arena = MakeArena(kPage);
  const std::string before = Content(*arena);
  std::vector<BufferRequest> requests;
  requests.push_back(Request({Extent{arena, 100, 60}, Extent{arena, 500, 1}}));
  PlacedNonces nonces;
  ASSERT_TRUE(nonces.Place(requests));
  const std::string during = Content(*arena);
  EXPECT_EQ(during.substr(0, 100), before.substr(0, 100));
  EXPECT_EQ(during.substr(161, 339), before.substr(161, 339));
  EXPECT_EQ(during.substr(501), before.substr(501));
  size_t nonce_bytes = 0;
  for (const wire::NoncePlace& place : requests[0].verify) {
    for (size_t i = 0; i < place.nonce.size(); ++i) {
      const uint64_t flat = place.offset + i;
      const uint64_t at = flat < 60 ? 100 + flat : 500;
      EXPECT_EQ(during[at], place.nonce[i]);
      EXPECT_NE(during[at], before[at]);
      ++nonce_bytes;
    }
  }
  EXPECT_EQ(nonce_bytes, 32U);  // the seam is within 16 bytes of the end
  EXPECT_TRUE(nonces.Restore());
  EXPECT_EQ(Content(*arena), before);
  EXPECT_TRUE(nonces.Restore());
}

TEST_F(PlacedNoncesTest, MemoryThatSeveralBuffersShareHasOneContent) {
  const auto arena = MakeArena(kPage);
  const std::string before = Content(*arena);
  std::vector<BufferRequest> requests;
  requests.push_back(Request({Extent{arena, 0, 100}}));
  requests.push_back(Request({Extent{arena, 8, 50}}));
  requests.push_back(Request({Extent{arena, 0, 100}, Extent{arena, 4, 7}}));
  {
    PlacedNonces nonces;
    ASSERT_TRUE(nonces.Place(requests));
    const std::string during = Content(*arena);
    const uint64_t starts[] = {0, 8, 0};
    for (size_t i = 0; i < requests.size(); ++i) {
      for (const wire::NoncePlace& place : requests[i].verify) {
        const bool second_piece = i == 2 && place.offset >= 100;
        const uint64_t at = second_piece ? place.offset - 96 : starts[i] + place.offset;
        EXPECT_EQ(during.substr(at, place.nonce.size()), place.nonce) << i << " " << place.offset;
      }
    }
  }
  EXPECT_EQ(Content(*arena), before);  // by the destructor
}

TEST_F(PlacedNoncesTest, MemoryThatCannotBeWrittenEndsNothingAndTheRestIsRestored) {
  const auto good = MakeArena(kPage);
  const auto bad = MakeArena(2 * kPage);
  const std::string before = Content(*good);
  const std::string before_bad = Content(*bad);
  // A nonce of which the first half could be written, and the second not.
  ASSERT_EQ(::mprotect(bad->data() + kPage, kPage, PROT_READ), 0);
  std::vector<BufferRequest> requests;
  requests.push_back(Request({Extent{good, 0, kPage}}));
  requests.push_back(Request({Extent{bad, 0, kPage}, Extent{bad, kPage, kPage}}));
  PlacedNonces nonces;
  const Status placed = nonces.Place(requests);
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, ErrorCode::kFdReadOnly) << placed.error().message;
  EXPECT_EQ(Content(*good), before);
  EXPECT_EQ(Content(*bad), before_bad);
}

TEST_F(PlacedNoncesTest, AFailureToRestoreIsToldAndTheOthersAreRestored) {
  const auto good = MakeArena(kPage);
  const auto bad = MakeArena(kPage);
  const std::string before = Content(*good);
  std::vector<BufferRequest> requests;
  requests.push_back(Request({Extent{bad, 0, kPage}}));
  requests.push_back(Request({Extent{good, 0, kPage}}));
  PlacedNonces nonces;
  ASSERT_TRUE(nonces.Place(requests));
  ASSERT_EQ(::mprotect(bad->data(), kPage, PROT_READ), 0);
  EXPECT_FALSE(nonces.Restore());
  EXPECT_EQ(Content(*good), before);
}

TEST_F(PlacedNoncesTest, MemoryThatIsGoneIsAnError) {
  const auto arena = MakeArena(kPage);
  std::vector<BufferRequest> requests;
  requests.push_back(Request({Extent{arena, 0, kPage}}));
  ASSERT_NE(::mmap(arena->data(), kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  PlacedNonces nonces;
  const Status placed = nonces.Place(requests);
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, ErrorCode::kFdReadOnly) << placed.error().message;
}

}  // namespace
}  // namespace gantry::client
