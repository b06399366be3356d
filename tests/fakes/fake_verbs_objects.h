// The regions and queues that a fake RDMA device makes: each keeps its state on the fabric, and
// fails when its device was told so. Thread-safe.
#pragma once

#include <memory>
#include <string_view>

#include "tests/fakes/fake_fabric.h"

namespace gantry::testing {

// Counts the call. The errno with which it fails, or 0. Under the fabric's lock.
int FailureOf(FakeDevice& device, FakeCall call);
tl::unexpected<Error> Refuse(const FakeDevice& device, std::string_view what, int error_number);
UniqueFd MakeFakeEvent();
void MakeReadable(const UniqueFd& event);
void DrainFakeEvent(const UniqueFd& event);

// Each was counted as live in `open`. Of a region the keys are chosen here; `memory` is kept.
std::unique_ptr<transport::VerbsRegion> MakeFakeRegion(FakeFabric& fabric,
                                                       std::shared_ptr<FakeOpen> open,
                                                       const FakeRegion& state,
                                                       std::shared_ptr<const void> memory);
std::unique_ptr<transport::VerbsCompletionQueue> MakeFakeCompletionQueue(
    FakeFabric& fabric, std::shared_ptr<FakeOpen> open, uint32_t depth);
std::shared_ptr<FakeQueue> StateOf(transport::VerbsCompletionQueue& queue);
std::unique_ptr<transport::VerbsQueuePair> MakeFakeQueuePair(
    FakeFabric& fabric, std::shared_ptr<FakeQueue> queue,
    const transport::QueuePairOptions& options);

}  // namespace gantry::testing
