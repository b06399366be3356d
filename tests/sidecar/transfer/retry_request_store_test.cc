// Requests are kept for another attempt as long as there is room.
#include "sidecar/transfer/retry_request_store.h"

#include <gtest/gtest.h>

#include <memory>

namespace gantry::engine {
namespace {

TEST(RetryRequestStoreTest, KeepsWhatThereIsRoomFor) {
  const auto store = std::make_shared<RetryRequestStore>(100'000);
  wire::TransferRequest request;
  request.local_blocks.resize(8'000);
  const auto kept = store->Keep(wire::TransferRequest(request));
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->local_blocks.size(), 8'000u);
  EXPECT_GT(store->bytes(), 64'000u);
  EXPECT_EQ(store->Keep(wire::TransferRequest(request)), nullptr);
  EXPECT_LT(store->bytes(), 100'000u);
  auto last = store->Keep({});
  EXPECT_NE(last, nullptr);
  last.reset();
  EXPECT_LT(store->bytes(), 70'000u);
}

}  // namespace
}  // namespace gantry::engine
