#include <openssl/sha.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "sidecar/memory/memory_mapper.h"

namespace gantry::memory {
namespace {

// A driver may make another handle for one allocation each time, and the same one for what comes
// after it at its address: neither is in it. The id stands for the address at one time.
MemoryIdentity GpuIdentity(const AllocationSource& source) {
  if (source.identity) return *source.identity;
  const std::string name = source.gpu.device_uuid + "/" + std::to_string(source.gpu.buffer_id) +
                           "/" + std::to_string(source.gpu.exporter_pid) + "/" + source.exporter;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  ::SHA256(reinterpret_cast<const unsigned char*>(name.data()), name.size(), digest.data());
  MemoryIdentity identity;
  std::memcpy(&identity.device, digest.data(), sizeof(identity.device));
  std::memcpy(&identity.inode, digest.data() + sizeof(identity.device), sizeof(identity.inode));
  return identity;
}

}  // namespace

Result<MemoryIdentity> IdentityOf(const AllocationSource& source) {
  if (source.kind == wire::MemoryKind::kGpu) return GpuIdentity(source);
  MemoryIdentity identity;
  struct stat info = {};
  if (::fstat(source.fd->get(), &info) != 0) {
    return Fail(SystemError(ErrorCode::kNotExportable, "fstat of the descriptor", errno));
  }
  identity.device = info.st_dev;
  identity.inode = info.st_ino;
  return identity;
}

}  // namespace gantry::memory
