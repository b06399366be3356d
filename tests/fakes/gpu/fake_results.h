// The errors of the fakes, which CUDA and HIP number alike. Constants.
#pragma once

namespace gantry::fake_gpu {

using Result = int;

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kPeerAccessUnsupported = 217;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kPeerAccessAlreadyEnabled = 704;
inline constexpr Result kContextIsDestroyed = 709;
inline constexpr Result kHostMemoryAlreadyRegistered = 712;
inline constexpr Result kHostMemoryNotRegistered = 713;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kStreamCaptureUnsupported = 900;
inline constexpr Result kStreamCaptureInvalidated = 901;
inline constexpr Result kStreamCaptureImplicit = 906;

}  // namespace gantry::fake_gpu
