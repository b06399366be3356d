#include "tests/fakes/gpu/fake_capture.h"

#include <atomic>
#include <utility>

namespace gantry::fake_gpu {
namespace {

std::atomic<Result> capture_result = kSuccess;  // of the graph that is captured
std::atomic<const FakeStream*> captured = nullptr;
thread_local int capture_mode = 0;

}  // namespace

Result SpoilCapture() {
  if (captured == nullptr || capture_mode == kCaptureModeRelaxed) return kSuccess;
  capture_result = kStreamCaptureInvalidated;
  return kStreamCaptureUnsupported;
}

void BeginCapture(const FakeStream* stream) {
  capture_result = kSuccess;
  captured = stream;
}

Result EndCapture() {
  captured = nullptr;
  return capture_result;
}

bool IsCaptured(const FakeStream* stream) { return captured == stream; }

Result SpoilCaptureOf(const FakeStream* stream) {
  if (captured != stream) return kSuccess;
  capture_result = kStreamCaptureInvalidated;
  return kStreamCaptureUnsupported;
}

Result CaptureStatus(const FakeStream* stream, bool is_legacy, int* status) {
  const FakeStream* const busy = captured;
  if (busy != nullptr && busy->blocking() && is_legacy) return kStreamCaptureImplicit;
  *status = busy == nullptr || busy != stream ? kNotCaptured
            : capture_result == kSuccess      ? kCaptured
                                              : kCaptureSpoilt;
  return kSuccess;
}

void ExchangeCaptureMode(int* mode) { std::swap(*mode, capture_mode); }

}  // namespace gantry::fake_gpu
