#include "tests/contracts/hip_streams.h"

#include <string>
#include <utility>

#include "tests/contracts/hip_allocations.h"

namespace gantry::testing {

namespace hip = gpu::hip;

namespace {

hip::Stream HipStreamOf(gpu::StreamHandle stream) {
  return reinterpret_cast<hip::Stream>(static_cast<uint64_t>(stream));
}

}  // namespace

Result<std::unique_ptr<GpuStreams>> HipStreams::On(int ordinal) {
  ASSIGN_OR_RETURN(DynamicLibrary library, HipAllocations::OpenLibrary());
  std::unique_ptr<HipStreams> made(new HipStreams(std::move(library), ordinal));
  RETURN_IF_ERROR(made->Bind());
  return made;
}

Status HipStreams::Bind() {
  RETURN_IF_ERROR(library_.Bind("hipGetDevice", &call_.get_device));
  RETURN_IF_ERROR(library_.Bind("hipSetDevice", &call_.set_device));
  RETURN_IF_ERROR(library_.Bind("hipStreamCreateWithFlags", &call_.stream_create));
  RETURN_IF_ERROR(library_.Bind("hipStreamDestroy", &call_.stream_destroy));
  RETURN_IF_ERROR(library_.Bind("hipStreamSynchronize", &call_.stream_synchronize));
  RETURN_IF_ERROR(library_.Bind("hipMemsetAsync", &call_.memset_async));
  RETURN_IF_ERROR(library_.Bind("hipStreamBeginCapture", &begin_capture_));
  RETURN_IF_ERROR(library_.Bind("hipStreamEndCapture", &end_capture_));
  return library_.Bind("hipLaunchHostFunc", &launch_host_function_);
}

template <typename Call>
Status HipStreams::OnDevice(const char* what, Call call) {
  int before = 0;
  call_.get_device(&before);
  hip::Result result = call_.set_device(device_);
  if (result == hip::kSuccess) result = call();
  call_.set_device(before);
  if (result == hip::kSuccess) return {};
  return Fail(ErrorCode::kDeviceError, std::string(what) + ": error " + std::to_string(result));
}

Result<gpu::StreamHandle> HipStreams::Create(bool blocking) {
  hip::Stream stream = nullptr;
  RETURN_IF_ERROR(OnDevice("hipStreamCreateWithFlags", [&] {
    return call_.stream_create(&stream, blocking ? 0 : hip::kStreamNonBlocking);
  }));
  return gpu::StreamHandle{reinterpret_cast<uint64_t>(stream)};
}

Status HipStreams::Destroy(gpu::StreamHandle stream) {
  return OnDevice("hipStreamDestroy", [&] { return call_.stream_destroy(HipStreamOf(stream)); });
}

Status HipStreams::LaunchOnHost(gpu::StreamHandle stream, void (*function)(void*), void* argument) {
  return OnDevice("hipLaunchHostFunc",
                  [&] { return launch_host_function_(HipStreamOf(stream), function, argument); });
}

Status HipStreams::Fill(gpu::StreamHandle stream, gpu::DeviceAddress to, uint8_t value,
                        uint64_t bytes) {
  void* const address = reinterpret_cast<void*>(NumberOf(to));
  return OnDevice("hipMemsetAsync",
                  [&] { return call_.memset_async(address, value, bytes, HipStreamOf(stream)); });
}

Status HipStreams::Synchronize(gpu::StreamHandle stream) {
  return OnDevice("hipStreamSynchronize",
                  [&] { return call_.stream_synchronize(HipStreamOf(stream)); });
}

Status HipStreams::BeginCapture(gpu::StreamHandle stream) {
  constexpr int kModeGlobal = 0;
  return OnDevice("hipStreamBeginCapture",
                  [&] { return begin_capture_(HipStreamOf(stream), kModeGlobal); });
}

Status HipStreams::EndCapture(gpu::StreamHandle stream) {
  void* graph = nullptr;  // an empty one, which is left to the driver
  return OnDevice("hipStreamEndCapture", [&] { return end_capture_(HipStreamOf(stream), &graph); });
}

}  // namespace gantry::testing
