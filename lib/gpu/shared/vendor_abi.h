// The numbers and structures that are the same in the ABI of every vendor: HIP took CUDA's over.
// The check of each vendor's declarations (cuda_abi_check.cc, hip_abi_check.cc) holds for those
// that have a name in its headers.
#pragma once

namespace gantry::gpu::abi {

using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;

// Results: an enumeration in C, an int to callers.
inline constexpr int kSuccess = 0;
inline constexpr int kInvalidValue = 1;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kNotInitialized = 3;
inline constexpr int kDeinitialized = 4;
inline constexpr int kNoDevice = 100;
inline constexpr int kInvalidContext = 201;
inline constexpr int kInvalidHandle = 400;
inline constexpr int kNotReady = 600;
inline constexpr int kPeerAccessAlreadyEnabled = 704;
inline constexpr int kContextIsDestroyed = 709;
inline constexpr int kHostMemoryAlreadyRegistered = 712;
inline constexpr int kHostMemoryNotRegistered = 713;
inline constexpr int kNotSupported = 801;
inline constexpr int kStreamCaptureUnsupported = 900;
inline constexpr int kStreamCaptureInvalidated = 901;
inline constexpr int kStreamCaptureImplicit = 906;

inline constexpr int kHandleTypePosixFd = 1;
inline constexpr int kAllocationTypePinned = 1;
inline constexpr int kLocationTypeDevice = 1;
inline constexpr int kAccessReadWrite = 3;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterMapped = 2;
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr int kNotCaptured = 0;
inline constexpr int kCaptured = 1;
inline constexpr int kCaptureSpoilt = 2;
inline constexpr unsigned kStreamWriteValueDefault = 0;  // HIP has no name for it

struct IpcMemHandle {
  char reserved[64];
};
struct MemLocation {
  int type;
  int id;
};
struct MemAccessDesc {
  MemLocation location;
  int flags;
};

}  // namespace gantry::gpu::abi
