// What every Verbs does, libibverbs and the tests' fake alike: a suite over verbs_*_contract.cc.
// One joins by a VerbsPlace and an INSTANTIATE line. Used by one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/contracts/verbs_ends.h"

namespace gantry::testing {

// Two hosts, or twice the same, whose first devices reach each other.
class VerbsPlace {
 public:
  virtual ~VerbsPlace() = default;
  virtual transport::Verbs& here() = 0;
  virtual transport::Verbs& there() = 0;
  // Whether no device of them takes any dma-buf.
  virtual bool RefusesDmabufs() const = 0;
};

using MakeVerbsPlace = std::function<std::unique_ptr<VerbsPlace>()>;

// Two ends, connected; each fills its memory with a byte of its own.
class VerbsContract : public VerbsEnds, public ::testing::WithParamInterface<MakeVerbsPlace> {
 protected:
  static constexpr uint8_t kHere = 0xaa;
  static constexpr uint8_t kThere = 0xbb;
  // Enough for what is still on its way.
  static constexpr milliseconds kShortWhile{20};

  void SetUp() override {
    place_ = GetParam()();
    for (transport::Verbs* verbs : {&place_->here(), &place_->there()}) {
      const auto names = verbs->Devices();
      ASSERT_TRUE(names) << names.error().message;
      ASSERT_FALSE(names->empty()) << "there has to be an RDMA device here";
    }
    Reconnect();
  }
  std::unique_ptr<VerbsEnd> Here() {
    return MakeEnd(place_->here(), place_->here().Devices()->front(), kHere);
  }
  std::unique_ptr<VerbsEnd> There(const transport::RegionAccess& access = kFullAccess) {
    return MakeEnd(place_->there(), place_->there().Devices()->front(), kThere, access);
  }
  // As an error takes it: all is new.
  void Reconnect(const transport::RegionAccess& access_there = kFullAccess) {
    a_ = Here();
    b_ = There(access_there);
    Connect(*a_, *b_);
  }
  // So that an end which is not there is found out soon.
  static void BeHasty(VerbsEnd& end) {
    end.options.timeout = 10;
    end.options.retries = 1;
  }
  static void SleepShortly() { ::usleep(std::chrono::microseconds(kShortWhile).count()); }
  // One after the other.
  void ExpectDone(const VerbsEnd& end, const transport::WorkItem& item) {
    EXPECT_EQ(Post(end, {item}), 1u);
    EXPECT_THAT(end.Await(1),
                ::testing::ElementsAre(Completed(item.id, transport::WorkStatus::kSuccess)));
  }
  // It takes work, to flush it.
  void ExpectFlushes(const VerbsEnd& end) {
    const transport::WorkItem item = Read(77, *a_, 0, 8, *b_, 0);
    EXPECT_EQ(Post(end, {Silent(item)}), 1u);
    EXPECT_THAT(end.Await(1),
                ::testing::ElementsAre(Completed(77, transport::WorkStatus::kFlushed)));
  }

  std::unique_ptr<VerbsPlace> place_;
  std::unique_ptr<VerbsEnd> a_;
  std::unique_ptr<VerbsEnd> b_;
};

}  // namespace gantry::testing
