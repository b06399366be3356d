// NIXL's interface of a backend, declared by ourselves: names, order of virtual functions, members
// and their layout are those of NIXL 1.0.1 to 1.5.1 (github.com/ai-dynamo/nixl, src/api/cpp/backend
// and src/api/cpp/nixl_*.h). Nothing is taken over but what the binary interface needs.
// tests/nixl/test_interface.py compares it with the tables of functions in NIXL's own wheels.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gantry::nixl {

// In a record that the plugin returns. NIXL refuses a plugin with another number.
inline constexpr int kPluginApiVersion = 1;

enum class MemoryType : int { kDram = 0, kVram = 1, kBlock = 2, kObject = 3, kFile = 4 };
enum class Operation : int { kRead = 0, kWrite = 1 };
enum class ThreadSync : int { kNone = 0, kStrict = 1, kReadWrite = 2 };
enum class CostMethod : int { kAnalytical = 0 };

enum class NixlStatus : int {
  kInProgress = 1,
  kSuccess = 0,
  kNotPosted = -1,
  kInvalidParameter = -2,
  kBackend = -3,
  kNotFound = -4,
  kMismatch = -5,
  kNotAllowed = -6,
  kRepostActive = -7,
  kUnknown = -8,
  kNotSupported = -9,
  kRemoteDisconnect = -10,
  kCancelled = -11,
};

using Parameters = std::unordered_map<std::string, std::string>;
using MemoryTypes = std::vector<MemoryType>;
using Notifications = std::vector<std::pair<std::string, std::string>>;  // (agent, message)
using QueryAnswers = std::vector<std::optional<Parameters>>;

struct InitParams {
  std::string agent;
  std::string type;
  Parameters* parameters;
  bool wants_progress_thread;
  uint64_t progress_delay_us;
  ThreadSync sync;
  bool wants_telemetry;
  // Later versions have more behind it.
};

// A backend's record of a registration, here or at a peer.
class BackendMd {
 public:
  explicit BackendMd(bool is_private) : is_private_(is_private) {}
  virtual ~BackendMd() = default;

 protected:
  bool is_private_;
};

// A backend's record of a transfer.
class BackendReqH {
 public:
  virtual ~BackendReqH() = default;
};

struct BasicDesc {
  uintptr_t address;
  size_t bytes;
  uint64_t device;
};
struct MetaDesc : BasicDesc {
  BackendMd* metadata;
};
struct RemoteMetaDesc : MetaDesc {
  std::string agent;
};
struct BlobDesc : BasicDesc {
  std::string blob;
};

// The plugin gets such lists and makes none, so that the table of functions is NIXL's own.
template <typename Desc>
struct DescList {
  const void* functions;
  MemoryType type;
  std::vector<Desc> descs;
};
using MetaList = DescList<MetaDesc>;
using RemoteMetaList = DescList<RemoteMetaDesc>;
using RegistrationList = DescList<BlobDesc>;

// Options of a post.
struct OptionalArgs {
  std::string notification;
  bool has_notification;
  std::string custom;
};

// NIXL reads and writes these members by inline functions of its own: they stay as they are.
struct EngineMembers {
  std::string type;
  Parameters parameters;
  std::vector<std::byte> telemetry;  // of events, of which there are none
  std::mutex telemetry_mutex;
  bool init_failed = false;
  const std::string agent;
  const bool wants_telemetry;
};

// The names are NIXL's, as the test compares them.
class BackendEngine {
 public:
  explicit BackendEngine(const InitParams& params)
      : members_{.type = params.type,
                 .parameters = *params.parameters,
                 .telemetry = {},
                 .telemetry_mutex = {},
                 .agent = params.agent,
                 .wants_telemetry = params.wants_telemetry} {}
  BackendEngine(const BackendEngine&) = delete;
  BackendEngine& operator=(const BackendEngine&) = delete;

  virtual ~BackendEngine() = default;
  virtual bool supportsRemote() const = 0;
  virtual bool supportsLocal() const = 0;
  virtual bool supportsNotif() const = 0;
  virtual MemoryTypes getSupportedMems() const = 0;
  virtual NixlStatus registerMem(const BlobDesc& memory, const MemoryType& type,
                                 BackendMd*& out) = 0;
  virtual NixlStatus deregisterMem(BackendMd* memory) = 0;
  virtual NixlStatus connect(const std::string& agent) = 0;
  virtual NixlStatus disconnect(const std::string& agent) = 0;
  virtual NixlStatus unloadMD(BackendMd* memory) = 0;
  virtual NixlStatus prepXfer(const Operation& operation, const MetaList& local,
                              const MetaList& remote, const std::string& agent,
                              BackendReqH*& handle, const OptionalArgs* options) const = 0;
  virtual NixlStatus postXfer(const Operation& operation, const MetaList& local,
                              const MetaList& remote, const std::string& agent,
                              BackendReqH*& handle, const OptionalArgs* options) const = 0;
  virtual NixlStatus checkXfer(BackendReqH* handle) const = 0;
  virtual NixlStatus releaseReqH(BackendReqH* handle) const = 0;
  // Views that a GPU's kernels use. A backend without them says so.
  virtual NixlStatus prepMemView(const RemoteMetaList& list, void*& view,
                                 const OptionalArgs* options) const = 0;
  virtual NixlStatus prepMemView(const MetaList& list, void*& view,
                                 const OptionalArgs* options) const = 0;
  virtual void releaseMemView(void* view) const = 0;
  virtual NixlStatus getPublicData(const BackendMd* memory, std::string& data) const = 0;
  virtual NixlStatus getConnInfo(std::string& info) const = 0;
  virtual NixlStatus loadRemoteConnInfo(const std::string& agent, const std::string& info) = 0;
  virtual NixlStatus loadRemoteMD(const BlobDesc& memory, const MemoryType& type,
                                  const std::string& agent, BackendMd*& out) = 0;
  virtual NixlStatus loadLocalMD(BackendMd* memory, BackendMd*& out) = 0;
  virtual NixlStatus getNotifs(Notifications& notifications) = 0;
  virtual NixlStatus genNotif(const std::string& agent, const std::string& message) const = 0;
  virtual NixlStatus queryMem(const RegistrationList& list, QueryAnswers& answers) const = 0;
  virtual NixlStatus estimateXferCost(const Operation& operation, const MetaList& local,
                                      const MetaList& remote, const std::string& agent,
                                      BackendReqH* const& handle,
                                      std::chrono::microseconds& duration,
                                      std::chrono::microseconds& margin, CostMethod& method,
                                      const void* options) const = 0;

 private:
  EngineMembers members_;
};

// The result of nixl_plugin_init.
struct PluginRecord {
  int api_version;
  BackendEngine* (*create_engine)(const InitParams* params);
  void (*destroy_engine)(BackendEngine* engine);
  const char* (*get_plugin_name)();
  const char* (*get_plugin_version)();
  Parameters (*get_backend_options)();
  MemoryTypes (*get_backend_mems)();
};

}  // namespace gantry::nixl
