#include "client/timeline/timeline.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "lib/gpu/loaded_gpu_pointers.h"

namespace gantry::client {
namespace {

constexpr size_t kHost = 0;
// Between two looks at a counter.
constexpr microseconds kFirstPause{5};
constexpr microseconds kLongestPause{1000};

// Pages that wait for their streams. Neither a lock, which a child of fork could inherit locked,
// nor memory is needed to put one there; it is never destroyed.
std::atomic<CounterPage*> unquiet = nullptr;

void Keep(CounterPage* page) {
  page->next = unquiet;
  while (!unquiet.compare_exchange_weak(page->next, page)) {
  }
}

}  // namespace

uint64_t* CounterPage::PlaceOf(size_t index) const {
  return reinterpret_cast<uint64_t*>(arena->data()) + index;
}

bool CounterPage::HasLanded(size_t index) const {
  return __atomic_load_n(PlaceOf(index), __ATOMIC_ACQUIRE) >= counters[index].last;
}

bool CounterPage::IsQuiet() const {
  for (size_t index = kHost + 1; index < kCounters; ++index) {
    if (counters[index].taken && !HasLanded(index)) return false;
  }
  return true;
}

bool CounterPage::CanGo() const noexcept {
  if (on_gpu == nullptr) return true;
  return (IsQuiet() || on_gpu->IsGone()) && on_gpu->UnpinQuietly();
}

Result<std::unique_ptr<Timeline>> Timeline::Make(std::shared_ptr<Arena> arena,
                                                 std::optional<int> device) {
  FreeQuietPages();
  std::unique_ptr<Timeline> made(new Timeline);
  auto page = std::make_unique<CounterPage>();
  page->arena = std::move(arena);
  if (device) {
    ASSIGN_OR_RETURN(made->device_, gpu::OpenWorkloadDevice(*device));
    RETURN_IF_ERROR(made->device_->CheckStreamWrites());
    ASSIGN_OR_RETURN(page->on_gpu, made->device_->Pin(page->arena->data(), CounterPage::kBytes));
  }
  page->counters[kHost].taken = true;
  made->host_counter_ = page->PlaceOf(kHost);
  made->page_ = std::move(page);
  return made;
}

Timeline::~Timeline() {
  if (page_ == nullptr) return;
  Keep(page_.release());
  FreeQuietPages();
}

size_t Timeline::FreeQuietPages() {
  CounterPage* page = unquiet.exchange(nullptr);
  size_t left = 0;
  while (page != nullptr) {
    CounterPage* const next = page->next;
    // A child of fork leaves its parent's alone: it may not touch the GPU.
    if (page->owner == ::getpid() && page->CanGo()) {
      std::unique_ptr<CounterPage>(page).reset();
    } else {
      ++left;
      Keep(page);
    }
    page = next;
  }
  return left;
}

Timeline::Signal Timeline::FromHost() {
  return {kHost * sizeof(uint64_t), __atomic_add_fetch(host_counter_, 1, __ATOMIC_RELEASE)};
}

Result<Timeline::Signal> Timeline::FromStream(gpu::StreamHandle stream) {
  if (device_ == nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                "the timeline was made for no GPU, so that no stream can write to it",
                "name the GPU of the stream when the timeline is made; or synchronise the stream "
                "and signal from the host",
                "stream");
  }
  ASSIGN_OR_RETURN(const uint64_t id, device_->IdOf(stream));
  ASSIGN_OR_RETURN(const size_t index, Acquire(id));
  CounterPage::Counter& counter = page_->counters[index];
  const struct AtTheEnd {
    ~AtTheEnd() { me.Release(counter); }
    Timeline& me;
    CounterPage::Counter& counter;
  } at_the_end{*this, counter};
  MutexLock lock(counter.submitting);
  const uint64_t offset = index * sizeof(uint64_t);
  RETURN_IF_ERROR(
      device_->WriteWhenDone(stream, page_->on_gpu->range().base + offset, counter.last + 1));
  return Signal{offset, ++counter.last};
}

Status Timeline::Await(const Signal& signal, milliseconds longest) const {
  if (signal.offset % sizeof(uint64_t) != 0 || signal.offset >= CounterPage::kBytes) {
    return Fail(ErrorCode::kInvalidArgument, "the fence is at none of the timeline's counters", {},
                "fence");
  }
  const uint64_t* const counter = page_->PlaceOf(signal.offset / sizeof(uint64_t));
  const TimePoint begin = Clock::now();
  nanoseconds pause = kFirstPause;
  while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < signal.value) {
    if (page_->on_gpu != nullptr && page_->on_gpu->IsGone()) {
      return Fail(ErrorCode::kDeviceError,
                  "the GPU's context was ended before the stream got to its signal",
                  "make a new timeline");
    }
    if (Clock::now() - begin >= longest) {
      return Fail(ErrorCode::kDeadlineExceeded, "the stream has not got to its signal within " +
                                                    std::to_string(longest.count()) + " ms");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<nanoseconds>(2 * pause, kLongestPause);
  }
  return {};
}

Result<size_t> Timeline::Acquire(uint64_t stream) {
  std::optional<size_t> usable;
  MutexLock lock(mutex_);
  for (size_t index = kHost + 1; index < CounterPage::kCounters; ++index) {
    CounterPage::Counter& counter = page_->counters[index];
    if (counter.taken && counter.stream == stream) {
      ++counter.signallers;
      return index;
    }
    // One whose values have all been written is another stream's from there on: it grows further,
    // so that fences which name it stay reached.
    const bool is_idle = !counter.taken || (counter.signallers == 0 && page_->HasLanded(index));
    if (!usable && is_idle) usable = index;
    if (!counter.taken) break;  // nor are those behind it
  }
  if (!usable) {
    return Fail(ErrorCode::kResourceExhausted,
                "signals of " + std::to_string(CounterPage::kCounters - 1) +
                    " streams are waited for already, as many as a timeline has counters",
                "wait until some are reached, or make another timeline");
  }
  CounterPage::Counter& counter = page_->counters[*usable];
  counter.stream = stream;
  counter.taken = true;
  ++counter.signallers;
  return *usable;
}

void Timeline::Release(CounterPage::Counter& counter) {
  MutexLock lock(mutex_);
  --counter.signallers;
}

}  // namespace gantry::client
