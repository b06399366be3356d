#include "sidecar/peer/identity/session_proof.h"

#include <openssl/sha.h>

namespace gantry::peer {

std::string SessionProof(std::string_view session) {
  // So that it is of no use where a hash of the secret might stand for something else.
  const std::string text = "gantry execution\n" + std::string(session);
  std::string proof(SHA256_DIGEST_LENGTH, '\0');
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(proof.data()));
  return proof;
}

}  // namespace gantry::peer
