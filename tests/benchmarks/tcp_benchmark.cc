// The tcp transport against plain send and recv: the same ranges in the same order, as many
// connections, the same run, one process forked for each target. Verifies the bytes of every round.
// tcp_benchmark [streams] [MiB] [rounds]; prints one line of JSON for each case.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sidecar/transport/tcp/channel/tcp_socket.h"
#include "sidecar/transport/tcp/tcp_remote_buffer.h"
#include "sidecar/transport/tcp/tcp_server.h"
#include "sidecar/transport/tcp/tcp_transport.h"
#include "tests/fakes/test_arena.h"
#include "tests/fakes/test_waker.h"

namespace gantry::transport {
namespace {

using gantry::testing::TestArena;

class NoMapper final : public memory::MemoryMapper {
 public:
  Result<memory::MappingId> Map(const memory::AllocationSource&) override {
    return memory::MappingId{1, 1};
  }
  Status Unmap(memory::MappingId) override { return {}; }
  Result<std::optional<memory::ProbeMismatch>> Compare(
      std::span<const memory::MemoryProbe>) override {
    return std::nullopt;
  }
};

std::shared_ptr<const memory::MappedAllocation> AllocationOf(NoMapper& mapper,
                                                             const TestArena& arena) {
  memory::AllocationSource source;
  source.fd = std::make_shared<UniqueFd>(arena.Fd());
  source.size = arena.size();
  source.writable = true;
  return *memory::MappedAllocation::Create(mapper, source);
}

class OneBuffer final : public TargetBuffers {
 public:
  explicit OneBuffer(const TestArena& arena) {
    const std::vector<uint64_t> sizes = {arena.size()};
    use_.pieces_ = *memory::PieceMap::Create({{0, 0, arena.size()}}, sizes);
    use_.allocations_ = {AllocationOf(mapper_, arena)};
  }
  Result<std::unique_ptr<TargetBuffer>> Acquire(std::string_view, std::string_view, uint64_t,
                                                bool) override {
    return std::make_unique<Use>(use_);
  }

 private:
  struct Use final : TargetBuffer {
    const memory::PieceMap& pieces() const override { return pieces_; }
    const std::vector<std::shared_ptr<const memory::MappedAllocation>>& allocations()
        const override {
      return allocations_;
    }
    memory::PieceMap pieces_;
    std::vector<std::shared_ptr<const memory::MappedAllocation>> allocations_;
  };
  NoMapper mapper_;
  Use use_;
};

struct Case {
  uint64_t block = 0;
  bool write = false;
  std::vector<uint32_t> here;  // block numbers, in the order in which they are moved
  std::vector<uint32_t> there;
};

Case CaseOf(uint64_t bytes, uint64_t block, bool write) {
  Case result{block, write, std::vector<uint32_t>(bytes / block), {}};
  std::iota(result.here.begin(), result.here.end(), 0u);
  result.there = result.here;
  std::mt19937 random(7);
  std::shuffle(result.here.begin(), result.here.end(), random);
  std::shuffle(result.there.begin(), result.there.end(), random);
  return result;
}

// Plain: each stream moves its share of the blocks, one send or recv each (or the rest of it).
void PlainShare(int socket, const TestArena& arena, const std::vector<uint32_t>& blocks,
                uint64_t block, size_t stream, size_t streams, bool send) {
  const size_t begin = blocks.size() * stream / streams;
  const size_t end = blocks.size() * (stream + 1) / streams;
  for (size_t i = begin; i < end; ++i) {
    uint8_t* at = arena.data() + blocks[i] * block;
    for (uint64_t done = 0; done < block;) {
      const ssize_t moved = send ? ::send(socket, at + done, block - done, MSG_NOSIGNAL)
                                 : ::recv(socket, at + done, block - done, MSG_WAITALL);
      if (moved <= 0) std::abort();
      done += static_cast<uint64_t>(moved);
    }
  }
}

// Both ends of one plain connection, blocking.
std::pair<UniqueFd, UniqueFd> PlainPair() {
  BoundSocket bound = *ListenTcp("127.0.0.1", 0);
  UniqueFd one =
      std::move(ConnectTcp("127.0.0.1", bound.port, Clock::now() + milliseconds(5000))->socket);
  (void)AwaitSocket(bound.socket.get(), false, Clock::now() + milliseconds(5000));
  UniqueFd other = std::move(AcceptTcp(bound.socket.get())->socket);
  for (const UniqueFd* fd : {&one, &other}) {
    ::fcntl(fd->get(), F_SETFL, ::fcntl(fd->get(), F_GETFL) & ~O_NONBLOCK);
  }
  return {std::move(one), std::move(other)};
}

// Runs `serve` in a child until this goes.
class Child {
 public:
  explicit Child(const std::function<void()>& serve) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    serve();
    std::_Exit(0);
  }
  // Of the child and of this process, so far.
  double CpuSeconds() const {
    clockid_t clock = 0;
    if (::clock_getcpuclockid(pid_, &clock) != 0) std::abort();
    return SecondsOf(clock) + SecondsOf(CLOCK_PROCESS_CPUTIME_ID);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  static double SecondsOf(clockid_t clock) {
    timespec time = {};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  }
  const pid_t pid_;
};

// What one round took.
struct Spent {
  double seconds = 0;
  double cpu_seconds = 0;  // of both processes: what a busy machine distorts less
};

void InThreads(size_t count, const std::function<void(size_t)>& run) {
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back([&run, i] { run(i); });
}

Spent Measure(const Child& child, const std::function<void()>& run) {
  const TimePoint begun = Clock::now();
  const double cpu = child.CpuSeconds();
  run();
  return {SecondsBetween(begun, Clock::now()), child.CpuSeconds() - cpu};
}

void Verify(const Case& c, const TestArena& local, const TestArena& remote) {
  for (size_t i = 0; i < c.here.size(); ++i) {
    if (std::memcmp(local.data() + c.here[i] * c.block, remote.data() + c.there[i] * c.block,
                    c.block) != 0) {
      std::fprintf(stderr, "block %zu differs\n", i);
      std::abort();
    }
  }
}

class PlainRun {
 public:
  PlainRun(size_t streams, const TestArena& local, const TestArena& remote, const Case& c)
      : local_(local), case_(c), gate_(PlainPair()) {
    for (size_t i = 0; i < streams; ++i) pairs_.push_back(PlainPair());
    child_ = std::make_unique<Child>([&] { Serve(remote); });
  }
  Spent Round() {
    return Measure(*child_, [this] {
      char go = 'g';
      (void)!::send(gate_.first.get(), &go, 1, 0);
      InThreads(pairs_.size(), [this](size_t i) {
        PlainShare(pairs_[i].first.get(), local_, case_.here, case_.block, i, pairs_.size(),
                   case_.write);
      });
      (void)!::recv(gate_.first.get(), &go, 1, 0);  // the other side has it all
    });
  }

 private:
  void Serve(const TestArena& remote) {
    char go = 0;
    while (::recv(gate_.second.get(), &go, 1, 0) == 1) {
      InThreads(pairs_.size(), [&](size_t i) {
        PlainShare(pairs_[i].second.get(), remote, case_.there, case_.block, i, pairs_.size(),
                   !case_.write);
      });
      (void)!::send(gate_.second.get(), &go, 1, 0);
    }
  }
  const TestArena& local_;
  const Case& case_;
  std::pair<UniqueFd, UniqueFd> gate_;
  std::vector<std::pair<UniqueFd, UniqueFd>> pairs_;
  std::unique_ptr<Child> child_;
};

struct PipedOffer {
  uint16_t port = 0;
  char tickets[32][kTicketBytes] = {};
};

class PipedOpener final : public TcpStreamOpener {
 public:
  explicit PipedOpener(const PipedOffer& offer) : offer_(offer) {}
  Result<Offer> Open(size_t streams, TimePoint) override {
    Offer offer;
    offer.host = "127.0.0.1";
    offer.port = offer_.port;
    for (size_t i = 0; i < streams; ++i) {
      offer.tickets.emplace_back(offer_.tickets[i], kTicketBytes);
    }
    return offer;
  }

 private:
  const PipedOffer offer_;
};

class TcpRun {
 public:
  TcpRun(size_t streams, bool checksum, const TestArena& local, const TestArena& remote,
         const Case& c) {
    auto gate = PlainPair();
    child_ = std::make_unique<Child>([&] { Serve(remote, gate.second.get()); });
    PipedOffer offer;
    if (::recv(gate.first.get(), &offer, sizeof(offer), MSG_WAITALL) != sizeof(offer)) std::abort();
    TcpOptions options;
    options.streams_per_peer = static_cast<int>(streams);
    options.checksum = checksum;
    loops_ = *IoLoops::Create(2);
    helpers_ = std::make_unique<HelperThreads>(4);
    transport_ = std::make_unique<TcpTransport>(options, *loops_, *helpers_, nullptr,
                                                [this] { waker_.Wake(); });
    peer_ = transport_->AddPeer("bench", std::make_shared<PipedOpener>(offer));
    auto plan = std::make_shared<MovePlan>();
    plan->operation = c.write ? wire::Operation::kWrite : wire::Operation::kRead;
    plan->local = {AllocationOf(mapper_, local)};
    plan->remote = {{nullptr, std::make_shared<TcpRemoteBuffer>(peer_, "b", 1, remote.size())}};
    for (size_t i = 0; i < c.here.size(); ++i) {
      MoveSegment segment;
      segment.local_offset = c.here[i] * c.block;
      segment.remote_offset = c.there[i] * c.block;
      segment.length = c.block;
      plan->segments.push_back(segment);
      plan->bytes += c.block;
    }
    plan_ = std::move(plan);
    Round();  // opens the streams
    ::usleep(50'000);
  }
  ~TcpRun() {
    plan_.reset();
    peer_.reset();
    transport_.reset();
    helpers_.reset();
  }
  Spent Round() {
    return Measure(*child_, [this] {
      auto operation = transport_->Start(plan_, 0, 1);
      std::vector<uint64_t> tokens;
      while (!operation->finished()) {
        waker_.Wait(milliseconds(1000));
        transport_->Poll(&tokens);
      }
      if (operation->error()) {
        std::fprintf(stderr, "%s\n", operation->error()->message.c_str());
        std::abort();
      }
    });
  }

 private:
  static void Serve(const TestArena& remote, int gate) {
    auto loops = *IoLoops::Create(2);
    HelperThreads helpers(2);
    OneBuffer buffer(remote);
    auto server = *TcpServer::Create({}, "127.0.0.1", 0, *loops, helpers, buffer, nullptr);
    PipedOffer offer;
    offer.port = server->port();
    const auto tickets = *server->tickets().Issue("s", 32, milliseconds(60'000));
    for (size_t i = 0; i < tickets.size(); ++i) {
      std::memcpy(offer.tickets[i], tickets[i].data(), kTicketBytes);
    }
    (void)!::send(gate, &offer, sizeof(offer), 0);
    while (true) ::pause();
  }

  NoMapper mapper_;
  gantry::testing::TestWaker waker_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<IoLoops> loops_;
  std::unique_ptr<HelperThreads> helpers_;
  std::unique_ptr<TcpTransport> transport_;
  std::shared_ptr<TcpPeer> peer_;
  std::shared_ptr<const MovePlan> plan_;
};

double Median(const std::vector<Spent>& rounds, double Spent::*what) {
  std::vector<double> values;
  for (const Spent& spent : rounds) values.push_back(spent.*what);
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Rounds of the three take turns, so that what else the machine does hits all alike.
void Compare(size_t streams, uint64_t bytes, int rounds, uint64_t block, bool write) {
  const Case c = CaseOf(bytes, block, write);
  const TestArena local(bytes, 1);
  const TestArena remote(bytes, 2);
  PlainRun plain(streams, local, remote, c);
  TcpRun with_crc(streams, true, local, remote, c);
  TcpRun without_crc(streams, false, local, remote, c);
  const std::function<Spent()> runs[] = {[&] { return plain.Round(); },
                                         [&] { return without_crc.Round(); },
                                         [&] { return with_crc.Round(); }};
  std::vector<Spent> spent[3];
  for (int i = 0; i < rounds; ++i) {
    for (int j = 0; j < 3; ++j) {
      std::memset((write ? remote : local).data(), 0, bytes);
      spent[j].push_back(runs[j]());
      Verify(c, local, remote);
    }
  }
  std::printf("{\"operation\":\"%s\",\"block_bytes\":%llu,\"streams\":%zu,\"plain_gb_per_s\":%.2f",
              write ? "write" : "read", static_cast<unsigned long long>(block), streams,
              static_cast<double>(bytes) / Median(spent[0], &Spent::seconds) / 1e9);
  const char* const names[] = {"", "tcp", "tcp_crc"};
  for (int j = 1; j < 3; ++j) {
    std::printf(",\"%s_ratio\":%.2f,\"%s_ratio_of_cpu_time\":%.2f", names[j],
                Median(spent[0], &Spent::seconds) / Median(spent[j], &Spent::seconds), names[j],
                Median(spent[0], &Spent::cpu_seconds) / Median(spent[j], &Spent::cpu_seconds));
  }
  std::printf("}\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace gantry::transport

int main(int argc, char** argv) {
  const auto argument = [&](int i, int otherwise) {
    return argc > i ? std::max(1, std::atoi(argv[i])) : otherwise;
  };
  const auto streams = static_cast<size_t>(std::min(argument(1, 4), 32));
  const uint64_t bytes = static_cast<uint64_t>(argument(2, 128)) << 20;
  const int rounds = argument(3, 9);
  for (const bool write : {false, true}) {
    for (const uint64_t block : {4096, 65536, 1 << 20}) {
      gantry::transport::Compare(streams, bytes, rounds, block, write);
    }
  }
  return 0;
}
