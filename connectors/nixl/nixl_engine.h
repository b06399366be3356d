// The backend engine as NIXL calls it: no exception leaves it, and every failure is a line of the
// log and a status. Thread-safe.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "connectors/nixl/abi/nixl_interface.h"
#include "connectors/nixl/gantry_agent.h"

namespace gantry::nixl {

class NixlEngine : public BackendEngine {
 public:
  NixlEngine(const InitParams& params, std::unique_ptr<GantryAgent> agent);
  // The process that made it; a child of fork leaves it alone.
  pid_t owner() const { return owner_; }

  bool supportsRemote() const override { return true; }
  bool supportsLocal() const override { return true; }
  bool supportsNotif() const override { return true; }
  MemoryTypes getSupportedMems() const override { return {MemoryType::kDram, MemoryType::kVram}; }

  NixlStatus registerMem(const BlobDesc& memory, const MemoryType& type, BackendMd*& out) override;
  NixlStatus deregisterMem(BackendMd* memory) override;
  NixlStatus connect(const std::string& agent) override;
  NixlStatus disconnect(const std::string& agent) override;
  NixlStatus unloadMD(BackendMd* memory) override;

  NixlStatus prepXfer(const Operation& operation, const MetaList& local, const MetaList& remote,
                      const std::string& agent, BackendReqH*& handle,
                      const OptionalArgs* options) const override;
  NixlStatus postXfer(const Operation& operation, const MetaList& local, const MetaList& remote,
                      const std::string& agent, BackendReqH*& handle,
                      const OptionalArgs* options) const override;
  NixlStatus checkXfer(BackendReqH* handle) const override;
  NixlStatus releaseReqH(BackendReqH* handle) const override;

  NixlStatus prepMemView(const RemoteMetaList&, void*&, const OptionalArgs*) const override {
    return NixlStatus::kNotSupported;
  }
  NixlStatus prepMemView(const MetaList&, void*&, const OptionalArgs*) const override {
    return NixlStatus::kNotSupported;
  }
  void releaseMemView(void*) const override {}

  NixlStatus getPublicData(const BackendMd* memory, std::string& data) const override;
  NixlStatus getConnInfo(std::string& info) const override;
  NixlStatus loadRemoteConnInfo(const std::string& agent, const std::string& info) override;
  NixlStatus loadRemoteMD(const BlobDesc& memory, const MemoryType& type, const std::string& agent,
                          BackendMd*& out) override;
  NixlStatus loadLocalMD(BackendMd* memory, BackendMd*& out) override;
  NixlStatus getNotifs(Notifications& notifications) override;
  NixlStatus genNotif(const std::string& agent, const std::string& message) const override;
  NixlStatus queryMem(const RegistrationList&, QueryAnswers&) const override {
    return NixlStatus::kNotSupported;
  }
  NixlStatus estimateXferCost(const Operation& operation, const MetaList& local,
                              const MetaList& remote, const std::string& agent,
                              BackendReqH* const& handle, std::chrono::microseconds& duration,
                              std::chrono::microseconds& margin, CostMethod& method,
                              const void* options) const override;

 private:
  const pid_t owner_;
  const std::unique_ptr<GantryAgent> agent_;
};

}  // namespace gantry::nixl
