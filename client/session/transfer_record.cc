#include "client/session/transfer_record.h"

namespace gantry::client {
namespace {

bool IsOver(const TransferAnswer& answer) { return answer.status.state >= GANTRY_SUCCEEDED; }

}  // namespace

TransferAnswer TransferRecord::last() const {
  MutexLock lock(mutex_);
  return last_;
}

gantry_transfer_status TransferRecord::status() const {
  MutexLock lock(mutex_);
  return last_.status;
}

bool TransferRecord::is_over() const {
  MutexLock lock(mutex_);
  return IsOver(last_);
}

void TransferRecord::Learn(TransferAnswer answer) {
  MutexLock lock(mutex_);
  if (!IsOver(last_)) last_ = std::move(answer);
}

}  // namespace gantry::client
