// The one graph that is captured in this process, and what spoils it. Thread-safe; the mode is each
// thread's own.
#pragma once

#include "tests/fakes/gpu/fake_results.h"
#include "tests/fakes/gpu/fake_stream.h"

namespace gantry::fake_gpu {

// As CUDA and HIP number them.
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr int kNotCaptured = 0;
inline constexpr int kCaptured = 1;
inline constexpr int kCaptureSpoilt = 2;

// A call that is none of a graph's, from a thread that has not said so, spoils a capture of the
// process. Answers the error of that call.
Result SpoilCapture();

void BeginCapture(const FakeStream* stream);
// Whether something has spoilt it.
Result EndCapture();
bool IsCaptured(const FakeStream* stream);
// The error of a call that no capture of its stream bears, which spoils it.
Result SpoilCaptureOf(const FakeStream* stream);
Result CaptureStatus(const FakeStream* stream, bool is_legacy, int* status);
// The mode of this thread for the other one.
void ExchangeCaptureMode(int* mode);

}  // namespace gantry::fake_gpu
