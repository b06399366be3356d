// libamdhip64 of machines without a GPU: streams, events, what is captured, and values that streams
// write.
#include <chrono>
#include <memory>
#include <thread>

#include "tests/fakes/hip/fake_hip.h"

namespace gantry::fake_hip {
namespace {

using fake_gpu::FakeEvent;

FakeEvent* Of(hip::Event event) { return reinterpret_cast<FakeEvent*>(event); }

// A kernel's error ends the process, so that streams and events have none to tell.
template <typename Body>
hip::Result CallWithContext(const char* name, Body body) {
  return Call(name, [&]() -> hip::Result {
    FakeContext* context = nullptr;
    if (const hip::Result used = UseContext(&context); used != hip::kSuccess) return used;
    return body(*context);
  });
}

}  // namespace
}  // namespace gantry::fake_hip

using namespace gantry::fake_hip;
namespace hip = gantry::gpu::hip;
namespace fake_gpu = gantry::fake_gpu;

extern "C" {

hip::Result hipStreamCreateWithFlags(hip::Stream* stream, unsigned flags) {
  return CallOnDevice("hipStreamCreateWithFlags", [&](FakeContext& context) {
    *stream = reinterpret_cast<hip::Stream>(new StreamHolder(std::make_shared<FakeStream>(
        &context, context.error, (flags & hip::kStreamNonBlocking) == 0)));
    return hip::kSuccess;
  });
}
hip::Result hipStreamDestroy(hip::Stream stream) {
  return CallWithContext("hipStreamDestroy", [&](FakeContext& context) {
    HolderOf(context, stream)->Synchronize();
    delete reinterpret_cast<StreamHolder*>(stream);
    return hip::kSuccess;
  });
}
hip::Result hipStreamSynchronize(hip::Stream stream) {
  return CallWithContext("hipStreamSynchronize", [&](FakeContext& context) {
    HolderOf(context, stream)->Synchronize();
    return hip::kSuccess;
  });
}

hip::Result hipThreadExchangeStreamCaptureMode(int* mode) {
  fake_gpu::ExchangeCaptureMode(mode);
  return hip::kSuccess;
}
hip::Result hipStreamBeginCapture(hip::Stream stream, int) {
  return CallWithContext("hipStreamBeginCapture", [&](FakeContext& context) {
    fake_gpu::BeginCapture(HolderOf(context, stream).get());
    return hip::kSuccess;
  });
}
hip::Result hipStreamEndCapture(hip::Stream, void** graph) {
  *graph = nullptr;
  return Call("hipStreamEndCapture", [] { return fake_gpu::EndCapture(); });
}
hip::Result hipStreamIsCapturing(hip::Stream stream, int* status) {
  return CallWithContext("hipStreamIsCapturing", [&](FakeContext& context) {
    const bool is_legacy = reinterpret_cast<uint64_t>(stream) < 2;
    return fake_gpu::CaptureStatus(HolderOf(context, stream).get(), is_legacy, status);
  });
}

hip::Result hipLaunchHostFunc(hip::Stream stream, void (*function)(void*), void* argument) {
  return CallOnDevice("hipLaunchHostFunc", [&](FakeContext& context) {
    HolderOf(context, stream)->Submit([=] { function(argument); });
    return hip::kSuccess;
  });
}
hip::Result hipStreamWriteValue64(hip::Stream stream, void* address, uint64_t value, unsigned) {
  return CallOnDevice("hipStreamWriteValue64", [&](FakeContext& context) {
    const Address at = AddressOf(address);
    FakeStream* const written = HolderOf(context, stream).get();
    if (at % sizeof(value) != 0 || !Memory().IsReached(at, sizeof(value))) {
      return hip::kInvalidValue;
    }
    if (fake_gpu::IsCaptured(written)) return hip::kSuccess;  // a graph that nobody launches has it
    // So that callers who care for no order among themselves have none.
    std::this_thread::sleep_for(std::chrono::microseconds(1));
    written->Submit([=, on = written->context(), life = written->context()->id.load()] {
      if (on->id != life) return;  // it was reset, and its work dropped
      if (!Memory().WriteReached(at, value)) Fault(*on, fake_gpu::kIllegalAddress);
    });
    return hip::kSuccess;
  });
}

hip::Result hipEventCreateWithFlags(hip::Event* event, unsigned) {
  return CallOnDevice("hipEventCreateWithFlags", [&](FakeContext&) {
    *event = reinterpret_cast<hip::Event>(new FakeEvent);
    return hip::kSuccess;
  });
}
hip::Result hipEventDestroy(hip::Event event) {
  delete Of(event);
  return hip::kSuccess;
}
hip::Result hipEventRecord(hip::Event event, hip::Stream stream) {
  return CallOnDevice("hipEventRecord", [&](FakeContext& context) {
    Of(event)->Record(HolderOf(context, stream));
    return hip::kSuccess;
  });
}
hip::Result hipEventQuery(hip::Event event) {
  return CallOnDevice("hipEventQuery", [&](FakeContext&) {
    return Of(event)->IsDone() ? hip::kSuccess : hip::kNotReady;
  });
}
hip::Result hipEventSynchronize(hip::Event event) {
  return Call("hipEventSynchronize", [&] {
    Of(event)->Wait();
    return hip::kSuccess;
  });
}

}  // extern "C"
