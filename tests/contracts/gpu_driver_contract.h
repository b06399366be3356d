// What a GPU driver does, whichever it is: the fake in every run, the vendor's where there is a
// GPU. Where the two disagree the fake is wrong. One thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/clock.h"
#include "lib/gpu/gpu_drivers.h"
#include "tests/contracts/gpu_allocations.h"
#include "tests/contracts/gpu_exporter.h"

namespace gantry::testing {

using gpu::AddressRange;
using gpu::DeviceAddress;
using gpu::MemoryOrigin;

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kPiece = GpuAllocations::kPieceBytes;

template <typename T>
std::string ErrorOf(const Result<T>& result) {
  return result ? "" : result.error().message;
}

#define ASSERT_OK(result) ASSERT_EQ(ErrorOf(result), "")
#define EXPECT_OK(result) EXPECT_EQ(ErrorOf(result), "")

class GpuDriverContract : public ::testing::Test {
 protected:
  void SetUp() override {
    auto driver = gpu::LoadGpuDriver();
    ASSERT_OK(driver);
    driver_ = *std::move(driver);
    ASSERT_FALSE(driver_->devices().empty());
    auto context = driver_->OpenContext(0);
    ASSERT_OK(context);
    context_ = *std::move(context);
    auto allocations = GpuAllocations::On(*context_);
    ASSERT_OK(allocations);
    allocations_ = *std::move(allocations);
    auto stream = context_->NewStream();
    ASSERT_OK(stream);
    stream_ = *std::move(stream);
  }

  bool IsAmd() const { return driver_->vendor() == "amd"; }
  // Whether the installed driver has no such feature, as missing() names it.
  bool Lacks(const std::string& feature) const {
    for (const std::string& missing : driver_->missing()) {
      if (missing.starts_with(feature + ":")) return true;
    }
    return false;
  }
  int last_device() const { return static_cast<int>(driver_->devices().size()) - 1; }
  AddressRange Make(MemoryOrigin origin, uint64_t bytes) {
    const auto made = allocations_->Make(origin, bytes);
    EXPECT_OK(made);
    return made.value_or(AddressRange());
  }
  AddressRange MakeVirtual(const std::vector<uint64_t>& pieces, bool exportable = true) {
    const auto made = allocations_->MakeVirtual(pieces, exportable);
    EXPECT_OK(made);
    return made.value_or(AddressRange());
  }
  gpu::PointerInfo Resolve(DeviceAddress address) {
    const auto info = driver_->Resolve(NumberOf(address));
    EXPECT_OK(info);
    return info.value_or(gpu::PointerInfo());
  }
  void Write(DeviceAddress to, const std::vector<uint8_t>& bytes) {
    const auto written = context_->CopyFromHost(to, bytes.data(), bytes.size());
    EXPECT_OK(written);
  }
  std::vector<uint8_t> Read(DeviceAddress from, uint64_t bytes) {
    std::vector<uint8_t> read(bytes);
    const auto done = context_->CopyToHost(read.data(), from, bytes);
    EXPECT_OK(done);
    return read;
  }
  // Within two seconds.
  static bool Eventually(const std::function<bool()>& condition) {
    const TimePoint end = Clock::now() + milliseconds(2'000);
    while (!condition()) {
      if (Clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return true;
  }
  static GpuExporter StartExporter() {
    auto exporter = GpuExporter::Start();
    EXPECT_OK(exporter);
    return *std::move(exporter);
  }

  std::unique_ptr<gpu::GpuDriver> driver_;
  std::unique_ptr<gpu::GpuContext> context_;
  std::unique_ptr<GpuAllocations> allocations_;
  std::unique_ptr<gpu::GpuStream> stream_;
};

}  // namespace gantry::testing
