#include "tests/fakes/gpu/fake_context.h"

#include <unistd.h>

#include <algorithm>
#include <map>

namespace gantry::fake_gpu {
namespace {

constexpr uint64_t kStackBytes = 1024;  // of a thread, before anybody says otherwise
constexpr uint64_t kPerThread = 2;      // 0 and 1 are the legacy one

std::map<int, FakeContext>& Contexts() {
  static auto* const contexts = new std::map<int, FakeContext>;  // by ordinal
  return *contexts;
}

std::mutex default_streams_mutex;

// Unlike the vendors', the legacy stream and blocking ones do not wait for each other here.
const StreamHolder& DefaultStream(FakeContext& context, uint64_t handle) {
  thread_local std::map<const FakeContext*, StreamHolder> of_this_thread;
  const std::lock_guard lock(default_streams_mutex);
  StreamHolder& stream = handle == kPerThread ? of_this_thread[&context] : context.legacy_stream;
  if (stream == nullptr) {
    stream = std::make_shared<FakeStream>(&context, context.error, /*blocking=*/true);
  }
  return stream;
}

}  // namespace

int OrdinalOf(int gpu) {
  const auto& visible = Gpus().visible();
  const auto found = std::find(visible.begin(), visible.end(), gpu);
  return found == visible.end() ? 0 : static_cast<int>(found - visible.begin());
}

std::mutex& ContextsMutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

FakeContext* ContextOf(int ordinal) {
  const auto found = Contexts().find(ordinal);
  return found == Contexts().end() ? nullptr : &found->second;
}

Result Retain(int ordinal, FakeContext** context) {
  FakeContext& made = Contexts()[ordinal];
  if (made.id == 0) {
    static uint64_t last_id = 0;
    made.ordinal = ordinal;
    made.gpu = GpuAt(ordinal);
    made.memory = Gpus().TakeContext(made.gpu);
    if (!made.memory.valid()) return kOutOfMemory;
    made.error = kSuccess;
    made.id = ++last_id;
  }
  ++made.retained;
  *context = &made;
  return kSuccess;
}

void End(FakeContext& context) {
  context.id = 0;
  context.memory.reset();
  context.peers.clear();
}

Result SetStackSize(FakeContext& context, uint64_t bytes) {
  const uint64_t all = Gpus().context_bytes();
  const uint64_t size = all / 2 + all / 2 * std::min(bytes, kStackBytes) / kStackBytes;
  return ::ftruncate(context.memory.get(), static_cast<off_t>(size)) == 0 ? kSuccess : kOutOfMemory;
}

Result EnablePeer(FakeContext& context, int gpu) {
  if (!Gpus().Reaches(context.gpu, gpu)) return kPeerAccessUnsupported;
  const std::lock_guard lock(ContextsMutex());
  return context.peers.insert(gpu).second ? kSuccess : kPeerAccessAlreadyEnabled;
}

bool MayFollow(const FakeContext& context, const Block& block) {
  const std::lock_guard lock(ContextsMutex());
  const bool is_near = block.gpu == context.gpu || context.peers.contains(block.gpu);
  switch (block.kind) {
    case BlockKind::kDevice:
      return is_near;
    case BlockKind::kPool:
      return block.gpu == context.gpu;
    case BlockKind::kImported:
      return block.is_reached_as_own ? is_near : block.followers.contains(context.gpu);
    case BlockKind::kPiece:
      return block.followers.contains(context.gpu);
    case BlockKind::kRegistered:
      return block.on_device == block.base;
    default:
      return true;  // the host's
  }
}

const StreamHolder& HolderOf(FakeContext& current, uint64_t stream) {
  return stream <= kPerThread ? DefaultStream(current, stream)
                              : *reinterpret_cast<StreamHolder*>(stream);
}

}  // namespace gantry::fake_gpu
