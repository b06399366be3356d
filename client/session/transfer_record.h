// A submitted transfer and the last that is known of it. Thread-safe.
#pragma once

#include <string>
#include <utility>

#include "client/session/client_json.h"
#include "lib/base/mutex.h"

namespace gantry::client {

class TransferRecord {
 public:
  explicit TransferRecord(std::string id) : id_(std::move(id)) {}
  const std::string& id() const { return id_; }
  TransferAnswer last() const;
  gantry_transfer_status status() const;  // of last()
  bool is_over() const;                   // as last() says
  void Learn(TransferAnswer answer);      // an outcome is never replaced

 private:
  const std::string id_;
  mutable Mutex mutex_;
  TransferAnswer last_ GUARDED_BY(mutex_);
};

}  // namespace gantry::client
