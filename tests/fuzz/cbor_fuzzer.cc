// Any bytes as a CBOR body of the REST API.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/body_reading.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gantry::wire::ReadEveryBody(gantry::wire::BodyFormat::kCbor,
                              {reinterpret_cast<const char*>(data), size});
  return 0;
}
