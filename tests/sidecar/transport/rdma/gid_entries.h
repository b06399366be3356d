// GIDs as tests write them: by the address.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <string>

#include "sidecar/transport/rdma/verbs/gid_choice.h"

namespace gantry::transport {

inline Gid GidOf(const std::string& address) {
  Gid gid = {};
  const std::string text = address.find(':') == std::string::npos ? "::ffff:" + address : address;
  EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), gid.data()), 1) << address;
  return gid;
}

inline GidEntry GidAt(int index, GidType type, const std::string& address, int prefix_length = -1) {
  return {index, type, GidOf(address), "eth0", true, prefix_length};
}
inline GidEntry V1(int index, const std::string& address) {
  return GidAt(index, GidType::kRoceV1, address);
}
inline GidEntry V2(int index, const std::string& address, int prefix_length = -1) {
  return GidAt(index, GidType::kRoceV2, address, prefix_length);
}

}  // namespace gantry::transport
