#include "tests/fakes/gpu/fake_stream.h"

#include <chrono>
#include <utility>

namespace gantry::fake_gpu {
namespace {

constexpr std::chrono::microseconds kDelay{20};  // until a device has begun
constexpr size_t kWaitingMax = 1024;             // then whoever submits waits, as in the vendor's

uint64_t NextId() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

}  // namespace

void AwaitTime(std::chrono::steady_clock::time_point begin, double nanoseconds) {
  const std::chrono::duration<double, std::nano> time(nanoseconds);
  while (std::chrono::steady_clock::now() - begin < time) continue;
}

FakeStream::FakeStream(FakeContext* context, const std::atomic<Result>& error, bool blocking)
    : context_(context), error_(error), blocking_(blocking), id_(NextId()), thread_([this] {
        Run();
      }) {}

FakeStream::~FakeStream() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t FakeStream::Submit(std::function<void()> work, double nanoseconds) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.size() < kWaitingMax; });
  waiting_.push_back({std::move(work), nanoseconds});
  changed_.notify_all();
  return ++submitted_;
}

bool FakeStream::IsDone(uint64_t count) {
  const std::lock_guard lock(mutex_);
  return done_ >= count;
}

void FakeStream::WaitFor(uint64_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= count; });
}

void FakeStream::Synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ == submitted_; });
}

void FakeStream::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Work work = std::move(waiting_.front());
    waiting_.pop_front();
    changed_.notify_all();
    lock.unlock();
    const auto begin = std::chrono::steady_clock::now();
    if (work.nanoseconds == 0) std::this_thread::sleep_for(kDelay);
    if (error_ == kSuccess) work.run();
    AwaitTime(begin, work.nanoseconds);
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

void FakeEvent::Record(std::shared_ptr<FakeStream> stream) {
  const std::lock_guard lock(mutex_);
  count_ = stream->Submit([] {});
  stream_ = std::move(stream);
}

bool FakeEvent::IsDone() {
  const std::lock_guard lock(mutex_);
  if (stream_ == nullptr || !stream_->IsDone(count_)) return stream_ == nullptr;
  stream_.reset();
  return true;
}

void FakeEvent::Wait() {
  const std::lock_guard lock(mutex_);
  if (stream_ != nullptr) stream_->WaitFor(count_);
  stream_.reset();
}

}  // namespace gantry::fake_gpu
