// A sidecar in a process of its own, for tests that kill it.
//   peer_process owner <node dir> <name>               registers "k.0" (1 MiB), says "ready"
//   peer_process initiator <node dir> <name> <owner>   maps the owner's "k.0", says "ready"
#include <iostream>

#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::testing {
namespace {

int Serve(const std::vector<std::string>& arguments) {
  CountingMapper mapper;
  TestArena arena(1 << 20, 3);
  TestSidecar sidecar(arguments[2], arguments[3], mapper);
  std::vector<std::shared_ptr<const engine::RemoteBuffer>> handles;
  if (arguments[1] == "owner") {
    sidecar.StartServer();
    sidecar.Register(arena, "k.0");
  } else {
    const std::string address = "unix:" + arguments[2] + "/" + arguments[4] + ".peer.sock";
    const auto info = sidecar.directory().Put(arguments[4], address, In(10'000));
    auto acquired = sidecar.Acquire(arguments[4], {"k.0"});
    if (!acquired) return 1;
    handles = *std::move(acquired);
  }
  std::cout << "ready" << std::endl;
  for (;;) ::pause();
}

}  // namespace
}  // namespace gantry::testing

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  return arguments.size() < 4 ? 2 : gantry::testing::Serve(arguments);
}
