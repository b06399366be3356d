#include "lib/gpu/shared/vendor_pointers.h"

namespace gantry::gpu {

std::string HexOf(uint64_t number) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), kDigits[number & 15]);
    number >>= 4;
  } while (number != 0);
  return text;
}

std::string TextOf(DeviceAddress address) { return "0x" + HexOf(NumberOf(address)); }

Error NotExportable(DeviceAddress address, const std::string& why, const std::string& hint) {
  return Error(ErrorCode::kNotExportable, TextOf(address) + " " + why, hint);
}

Result<DeviceInfo> DeviceAt(const std::vector<DeviceInfo>& devices, int ordinal) {
  if (ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size()) {
    return devices[static_cast<size_t>(ordinal)];
  }
  return Fail(ErrorCode::kInvalidArgument, "there is no GPU " + std::to_string(ordinal) +
                                               " in this process, which sees " +
                                               std::to_string(devices.size()));
}

}  // namespace gantry::gpu
