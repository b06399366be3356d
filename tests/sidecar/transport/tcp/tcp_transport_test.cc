#include "sidecar/transport/tcp/tcp_transport.h"

#include <gtest/gtest.h>

#include "tests/sidecar/transport/tcp/tcp_harness.h"

namespace gantry::transport {
namespace {

using gantry::testing::TransportContract;
INSTANTIATE_TEST_SUITE_P(Tcp, TransportContract, ::testing::Values([] {
                           return std::make_unique<TcpHarness>(TcpWorldOptions());
                         }));
INSTANTIATE_TEST_SUITE_P(TcpWithoutChecksum, TransportContract, ::testing::Values([] {
                           TcpWorldOptions options;
                           options.tcp.checksum = false;
                           return std::make_unique<TcpHarness>(options);
                         }));
INSTANTIATE_TEST_SUITE_P(TcpOneStreamSmallParts, TransportContract, ::testing::Values([] {
                           TcpWorldOptions options;
                           options.tcp.streams_per_peer = 1;
                           options.tcp.part_bytes_max = options.tcp.part_bytes_min = 10'001;
                           return std::make_unique<TcpHarness>(options);
                         }));

}  // namespace
}  // namespace gantry::transport
