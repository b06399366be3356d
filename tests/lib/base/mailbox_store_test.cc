#include "lib/base/mailbox_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <thread>
#include <vector>

namespace gantry {
namespace {

// Of the system's memory.
bool HasPages(const UniqueFd& memory) {
  struct stat info = {};
  EXPECT_EQ(::fstat(memory.get(), &info), 0);
  return info.st_blocks > 0;
}

TEST(MailboxStore, HasSoManyAndNoMoreUntilSomeHaveRested) {
  MailboxStore store(3);
  std::vector<MailboxStore::End> ends;
  for (int i = 0; i < 3; ++i) ends.push_back(std::move(store.Open().value().end));
  EXPECT_EQ(store.Open().error().code, ErrorCode::kResourceExhausted);
  ends.pop_back();
  EXPECT_EQ(store.Open().error().code, ErrorCode::kResourceExhausted) << "its client may read yet";
  std::this_thread::sleep_for(MailboxStore::kRest + milliseconds(100));
  ends.push_back(std::move(store.Open().value().end));
  EXPECT_EQ(store.Open().error().code, ErrorCode::kResourceExhausted);
}

// Clients keep the memory for as long as they like.
TEST(MailboxStore, MemoryIsFreedWhoeverHasItAndNotBeforeItsTime) {
  MailboxStore store(3);
  auto opened = store.Open().value();
  Mailbox client = Mailbox::Map(opened.memory.get(), Mailbox::End::kClient).value();
  client.Look();
  ASSERT_TRUE(opened.end->Offer("the last answer"));
  opened.end.reset();
  EXPECT_FALSE(client.IsLookedAt());
  std::array<char, Mailbox::kMessageBytesMax> bytes;
  ASSERT_TRUE(store.Open());
  EXPECT_EQ(client.Take(bytes).value(), 15U);
  EXPECT_TRUE(HasPages(opened.memory));
  std::this_thread::sleep_for(MailboxStore::kRest + milliseconds(100));
  ASSERT_TRUE(store.Open());
  EXPECT_FALSE(HasPages(opened.memory));
  EXPECT_EQ(client.Take(bytes).value(), 0U);
}

}  // namespace
}  // namespace gantry
