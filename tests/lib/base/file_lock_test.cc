#include "lib/base/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "lib/base/unique_fd.h"
#include "tests/fakes/test_folder.h"

namespace gantry {
namespace {

class FileLockTest : public ::testing::Test {
 protected:
  UniqueFd Open() const {
    return UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  }

  const testing::TestFolder folder_;
  const std::string path_ = folder_.File("lock");
};

TEST_F(FileLockTest, OneHasItUntilItsDescriptorIsClosed) {
  UniqueFd one = Open();
  const UniqueFd other = Open();
  EXPECT_EQ(TryLock(one.get(), path_), FileLock::kTaken);
  EXPECT_EQ(TryLock(other.get(), path_), FileLock::kHeld);
  one.reset();
  EXPECT_EQ(TryLock(other.get(), path_), FileLock::kTaken);
}

TEST_F(FileLockTest, ALockOnAFileThatWasRemovedIsNone) {
  UniqueFd first = Open();
  const UniqueFd late = Open();
  EXPECT_EQ(TryLock(first.get(), path_), FileLock::kTaken);
  ::unlink(path_.c_str());
  EXPECT_EQ(TryLock(late.get(), path_), FileLock::kGone);
  first.reset();
  EXPECT_EQ(TryLock(late.get(), path_), FileLock::kGone);
  const UniqueFd next = Open();
  EXPECT_EQ(TryLock(next.get(), path_), FileLock::kTaken);
  EXPECT_EQ(TryLock(late.get(), path_), FileLock::kGone) << "another file is there now";
}

TEST_F(FileLockTest, WhatIsNoFileFails) { EXPECT_EQ(TryLock(-1, path_), FileLock::kFailed); }

}  // namespace
}  // namespace gantry
