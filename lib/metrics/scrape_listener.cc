#include "lib/metrics/scrape_listener.h"

#include <prometheus/exposer.h>

#include <exception>

namespace gantry::metrics {
namespace {

class Listener final : public ScrapeListener {
 public:
  explicit Listener(const std::vector<std::string>& options)
      : exposer_(options), port_(exposer_.GetListeningPorts().at(0)) {}

  void Add(const std::shared_ptr<prometheus::Collectable>& source) {
    exposer_.RegisterCollectable(source);
  }
  int port() const override { return port_; }

 private:
  prometheus::Exposer exposer_;
  const int port_;
};

}  // namespace

Result<std::unique_ptr<ScrapeListener>> ScrapeListener::Start(
    const std::string& address,
    const std::vector<std::shared_ptr<prometheus::Collectable>>& sources) {
  // Threads and timeout bound what slow clients can do: they delay a scrape by seconds, not for
  // ever, and never touch the data path.
  const std::vector<std::string> options = {"listening_ports",    address, "num_threads", "8",
                                            "request_timeout_ms", "2000"};
  try {
    auto listener = std::make_unique<Listener>(options);
    for (const auto& source : sources) listener->Add(source);
    return std::unique_ptr<ScrapeListener>(std::move(listener));
  } catch (const std::exception& error) {
    return Fail(ErrorCode::kInvalidArgument,
                "cannot serve metrics on '" + address + "': " + error.what(),
                "say a free address as ADDRESS:PORT, or [ADDRESS]:PORT for IPv6");
  }
}

}  // namespace gantry::metrics
