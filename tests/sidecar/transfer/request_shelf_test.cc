// Requests are kept for another attempt as long as there is room.
#include "sidecar/transfer/request_shelf.h"

#include <gtest/gtest.h>

#include <memory>

namespace gantry::engine {
namespace {

TEST(RequestShelfTest, KeepsWhatThereIsRoomFor) {
  const auto shelf = std::make_shared<RequestShelf>(100'000);
  wire::TransferRequest request;
  request.local_blocks.resize(8'000);
  const auto kept = shelf->Keep(wire::TransferRequest(request));
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->local_blocks.size(), 8'000u);
  EXPECT_GT(shelf->bytes(), 64'000u);
  EXPECT_EQ(shelf->Keep(wire::TransferRequest(request)), nullptr);
  EXPECT_LT(shelf->bytes(), 100'000u);
  auto last = shelf->Keep({});
  EXPECT_NE(last, nullptr);
  last.reset();
  EXPECT_LT(shelf->bytes(), 70'000u);
}

}  // namespace
}  // namespace gantry::engine
