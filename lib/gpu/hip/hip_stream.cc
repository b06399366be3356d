#include "lib/gpu/hip/hip_device.h"

namespace gantry::gpu {

Status HipApi::Copy(const HipDevice& device, DeviceAddress to, DeviceAddress from, uint64_t bytes,
                    hip::Stream stream) {
  return device.Call(&Functions::memcpy_async, PointerOf(to), PointerOf(from), bytes,
                     hip::kMemcpyDefault, stream);
}

Status HipApi::CopyBatch(const HipDevice& device, Address* to, Address* from, size_t* bytes,
                         size_t count, hip::Stream stream) {
  size_t failed = 0;
  return device.Call(&Functions::memcpy_batch_async, to, from, bytes, count, nullptr, nullptr, 0,
                     &failed, stream);
}

Status HipApi::CopyRows(const HipDevice& device, const RowCopy& rows, hip::Stream stream) {
  return device.Call(&Functions::memcpy_2d_async, PointerOf(rows.to), rows.to_pitch,
                     PointerOf(rows.from), rows.from_pitch, rows.bytes, rows.count,
                     hip::kMemcpyDefault, stream);
}

}  // namespace gantry::gpu
