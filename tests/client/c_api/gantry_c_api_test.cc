// client/include/gantry.h over a sidecar that only answers: objects, errors, ownership.
#include <fcntl.h>
#include <sys/mman.h>

#include <array>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "client/include/gantry_memory.h"
#include "client/include/gantry_messages.h"
#include "lib/base/unique_fd.h"
#include "lib/codec/buffer_types.h"
#include "tests/client/client_objects.h"

extern "C" int gantry_round_trip_in_c(const char* run_dir);

namespace gantry::client {
namespace {

TEST(GantryCApi, RoundTripInC) {
  FakeSidecar sidecar;
  EXPECT_EQ(gantry_round_trip_in_c(sidecar.run_dir().c_str()), 0);
  EXPECT_STREQ(gantry_version(), GANTRY_VERSION);
}

TEST(GantryCApi, NamesEachPathInTheirOrder) {
  for (size_t i = 0; i < wire::kPaths.size(); ++i) {
    EXPECT_STREQ(gantry_path_name(i), std::string(wire::NameOf(wire::kPaths[i])).c_str());
  }
  EXPECT_EQ(gantry_path_name(wire::kPaths.size()), nullptr);
  EXPECT_EQ(gantry_path_name(SIZE_MAX), nullptr);
  for (const wire::PathInfo& info : wire::kPathTable) {
    EXPECT_LT(info.name.size(), sizeof(gantry_transfer_status::path));
  }
}

TEST(GantryCApi, OpensByTheApiSocketToo) {
  FakeSidecar sidecar;
  gantry_client* client = nullptr;
  ASSERT_OK(gantry_client_open(sidecar.api_socket().c_str(), "w", nullptr, &client));
  EXPECT_TRUE(sidecar.attached());
  EXPECT_STREQ(gantry_client_workload(client), "w");
  EXPECT_STREQ(gantry_client_generation(client), "0000000000000abc");
  EXPECT_OK(gantry_client_check(client));
  gantry_client_destroy(client);
}

TEST(GantryCApi, OpenSaysWhatIsWrong) {
  gantry_client* client = nullptr;
  EXPECT_EQ(CodeOf(gantry_client_open("/nonexistent", "w", nullptr, &client)), "peer_unavailable");
  EXPECT_EQ(CodeOf(gantry_client_open("/nonexistent", "no/name", nullptr, &client)),
            "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_client_open(nullptr, "w", nullptr, &client)), "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_client_open("/x", nullptr, nullptr, &client)), "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_client_open("/x", "w", nullptr, nullptr)), "invalid_argument");
  FakeSidecar sidecar;
  sidecar.On("/v1/workloads", [](const FakeRequest&) {
    return FakeSidecar::Problem(409, "conflict", "the name is taken");
  });
  gantry_error* error = gantry_client_open(sidecar.run_dir().c_str(), "w", nullptr, &client);
  EXPECT_STREQ(gantry_error_message(error), "the name is taken");
  EXPECT_STREQ(gantry_error_hint(error), "do this");
  EXPECT_STREQ(gantry_error_field(error), "/f");
  EXPECT_EQ(CodeOf(error), "conflict");
}

TEST(GantryCApi, AnArenaIsHandedOverWhole) {
  OpenClient it;
  ASSERT_EQ(it.sidecar.fds_received().size(), 1U);
  EXPECT_EQ(it.sidecar.fds_received()[0].st_size, 1 << 20);
  struct stat info = {};
  ASSERT_EQ(::fstat(gantry_arena_fd(it.arena), &info), 0);
  EXPECT_EQ(it.sidecar.fds_received()[0].st_ino, info.st_ino);
}

TEST(GantryCApi, AdoptsTheCallersMemory) {
  OpenClient it;
  int fd = -1;
  ASSERT_OK(gantry_memfd_create("mine", 8192, &fd));
  const UniqueFd owner(fd);
  void* address = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  gantry_arena* arena = nullptr;
  ASSERT_OK(gantry_arena_adopt(it.client, fd, 8192, address, &arena));
  EXPECT_EQ(gantry_arena_data(arena), address);
  EXPECT_NE(gantry_arena_fd(arena), fd);
  gantry_extent extent = {};
  size_t count = 0;
  ASSERT_OK(
      gantry_client_resolve(it.client, static_cast<char*>(address) + 5, 9, &extent, 1, &count));
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(extent.arena_data, address);
  EXPECT_EQ(extent.offset, 5U);
  EXPECT_EQ(extent.bytes, 9U);
  gantry_arena* again = nullptr;
  EXPECT_EQ(CodeOf(gantry_arena_adopt(it.client, fd, 8192, address, &again)), "conflict");
  gantry_arena_destroy(arena);
  static_cast<char*>(address)[0] = 1;  // what the caller mapped stays
  EXPECT_OK(gantry_arena_adopt(it.client, fd, 8192, nullptr, &again));
  EXPECT_NE(gantry_arena_data(again), address);
  gantry_arena_destroy(again);
  ::munmap(address, 8192);
}

TEST(GantryCApi, RefusesAnAddressWhereTheArenaCannotBe) {
  OpenClient it;
  int fd = -1;
  ASSERT_OK(gantry_memfd_create("mine", 8192, &fd));
  const UniqueFd owner(fd);
  auto* const address =
      static_cast<char*>(::mmap(nullptr, 12288, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_EQ(::munmap(address + 4096, 8192), 0);
  gantry_arena* arena = nullptr;
  EXPECT_EQ(CodeOf(gantry_arena_adopt(it.client, fd, 8192, address + 64, &arena)),
            "invalid_argument");
  gantry_error* error = gantry_arena_adopt(it.client, fd, 8192, address, &arena);
  const std::string message = gantry_error_message(error);
  EXPECT_NE(message.find("where not all is mapped"), std::string::npos) << message;
  EXPECT_STREQ(gantry_error_field(error), "address");
  EXPECT_EQ(CodeOf(error), "invalid_argument");
  EXPECT_OK(gantry_arena_adopt(it.client, fd, 4096, address, &arena));
  gantry_arena_destroy(arena);
  ::munmap(address, 4096);
}

TEST(GantryCApi, RefusesDescriptorsThatCanHurt) {
  OpenClient it;
  gantry_arena* arena = nullptr;
  const UniqueFd open_ended(::memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(open_ended.get(), 4096), 0);
  EXPECT_EQ(CodeOf(gantry_arena_adopt(it.client, open_ended.get(), 4096, nullptr, &arena)),
            "fd_not_sealed");
  ASSERT_EQ(::fcntl(open_ended.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(CodeOf(gantry_arena_adopt(it.client, open_ended.get(), 8192, nullptr, &arena)),
            "fd_too_short");
  EXPECT_EQ(CodeOf(gantry_arena_adopt(it.client, 0x7fffffff, 4096, nullptr, &arena)),
            "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_arena_adopt(it.client, -1, 4096, nullptr, &arena)), "invalid_argument");
}

TEST(GantryCApi, RegistersOffsetsAndPieces) {
  OpenClient it;
  auto* data = static_cast<char*>(gantry_arena_data(it.arena));
  const gantry_piece pieces[] = {{data + 100, 50}, {data + 4096, 4096}};
  gantry_buffer_spec spec = {};
  spec.name = "two";
  spec.pieces = pieces;
  spec.piece_count = 2;
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(gantry_buffers_register(it.client, &spec, 1, &buffer));
  EXPECT_EQ(gantry_buffer_bytes(buffer), 4146U);
  EXPECT_STREQ(gantry_buffer_id(buffer), "id-two");
  const auto body = nlohmann::json::parse(it.sidecar.requests().back().body);
  EXPECT_EQ(body["buffers"][0]["pieces"][0]["offset"], 100);
  EXPECT_EQ(body["buffers"][0]["pieces"][1]["offset"], 4096);
  EXPECT_EQ(body["allocations"].size(), 1U);
  gantry_buffer_destroy(buffer);
  EXPECT_TRUE(it.sidecar.requests().back().target.starts_with("/v1/buffers/id-two?drain_ms="));
}

TEST(GantryCApi, ThousandBuffersAreOneRequest) {
  OpenClient it;
  std::vector<std::string> names;
  std::vector<gantry_piece> pieces;
  for (size_t i = 0; i < 1000; ++i) {
    names.push_back("layer." + std::to_string(i));
    pieces.push_back({static_cast<char*>(gantry_arena_data(it.arena)) + i * 1000, 1000});
  }
  std::vector<gantry_buffer_spec> specs(1000);
  for (size_t i = 0; i < 1000; ++i) {
    specs[i].name = names[i].c_str();
    specs[i].pieces = &pieces[i];
    specs[i].piece_count = 1;
  }
  std::vector<gantry_buffer*> buffers(1000);
  const size_t before = it.sidecar.requests().size();
  ASSERT_OK(gantry_buffers_register(it.client, specs.data(), 1000, buffers.data()));
  EXPECT_EQ(it.sidecar.requests().size(), before + 1);
  EXPECT_STREQ(gantry_buffer_name(buffers[999]), "layer.999");
  EXPECT_OK(gantry_arena_close(it.arena, 0));
  for (gantry_buffer* buffer : buffers) {
    EXPECT_EQ(gantry_buffer_is_registered(buffer), 0);
    gantry_buffer_destroy(buffer);
  }
}

TEST(GantryCApi, ClosingAnArenaUnregistersFirst) {
  OpenClient it;
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(it.Register("b", 0, 10, &buffer));
  EXPECT_OK(gantry_arena_close(it.arena, 5));
  EXPECT_EQ(gantry_buffer_is_registered(buffer), 0);
  EXPECT_EQ(it.sidecar.requests().back().target, "/v1/buffers/id-b?drain_ms=5");
  gantry_transfer* transfer = nullptr;
  EXPECT_EQ(CodeOf(it.Submit(buffer, &transfer)), "unregistered");
  gantry_buffer* later = nullptr;
  EXPECT_EQ(CodeOf(it.Register("c", 0, 10, &later)), "not_exportable");
  static_cast<char*>(gantry_arena_data(it.arena))[0] = 1;  // mapped until it is destroyed
  EXPECT_OK(gantry_arena_close(it.arena, 5));
  gantry_buffer_destroy(buffer);
}

TEST(GantryCApi, ABufferThatIsInUseStaysRegistered) {
  OpenClient it;
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(it.Register("b", 0, 10, &buffer));
  it.sidecar.On("/v1/buffers/", [](const FakeRequest&) {
    return FakeSidecar::Problem(504, "deadline_exceeded", "transfer t uses it");
  });
  EXPECT_EQ(CodeOf(gantry_buffer_unregister(buffer, 0)), "deadline_exceeded");
  EXPECT_EQ(gantry_buffer_is_registered(buffer), 1);
  EXPECT_EQ(CodeOf(gantry_arena_close(it.arena, 0)), "deadline_exceeded");
  it.sidecar.On("/v1/buffers/", [](const FakeRequest&) {
    return FakeSidecar::Problem(404, "not_found", "no such buffer");
  });
  EXPECT_OK(gantry_buffer_unregister(buffer, 0));
  EXPECT_EQ(gantry_buffer_is_registered(buffer), 0);
  EXPECT_OK(gantry_buffer_unregister(buffer, 0));
  gantry_buffer_destroy(buffer);
}

TEST(GantryCApi, SuspendsSomeOrAll) {
  OpenClient it;
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(it.Register("b", 0, 10, &buffer));
  EXPECT_OK(gantry_buffers_suspend(it.client, &buffer, 1, 7));
  EXPECT_EQ(it.sidecar.requests().back().target, "/v1/buffers:suspend");
  EXPECT_EQ(it.sidecar.requests().back().body, R"({"workload":"w","buffers":["b"],"drain_ms":7})");
  EXPECT_OK(gantry_buffers_resume(it.client, nullptr, 0));
  EXPECT_EQ(it.sidecar.requests().back().body, R"({"workload":"w"})");
  gantry_buffer_destroy(buffer);
}

TEST(GantryCApi, ATransferIsFollowedToItsEnd) {
  std::atomic<int> asked{0};
  OpenClient it;
  it.sidecar.On("/v1/transfers", [&](const FakeRequest&) {
    const bool over = ++asked >= 3;
    return FakeSidecar::Json(over ? 200 : 202, over
                                                   ? R"({"state":"failed","bytes":7,"bytes_moved":3,
        "error":{"code":"worker_lost","detail":"worker 1 died"}})"
                                                   : R"({"state":"running","bytes":7})");
  });
  gantry_buffer* buffer = nullptr;
  gantry_transfer* transfer = nullptr;
  ASSERT_OK(it.Register("b", 0, 10, &buffer));
  ASSERT_OK(it.Submit(buffer, &transfer));
  gantry_transfer_status status = {};
  EXPECT_OK(gantry_transfer_wait(transfer, 0, &status));
  EXPECT_EQ(status.state, GANTRY_RUNNING);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(CodeOf(gantry_transfer_wait(transfer, 1000, &status)), "worker_lost");
  EXPECT_EQ(status.state, GANTRY_FAILED);
  EXPECT_EQ(status.bytes_moved, 3U);
  EXPECT_EQ(CodeOf(gantry_transfer_wait(transfer, 1000, nullptr)), "worker_lost");
  EXPECT_OK(gantry_transfer_cancel(transfer, 0, &status));
  EXPECT_EQ(asked, 3);  // an outcome is not asked for again
  gantry_transfer_destroy(transfer);
  gantry_buffer_destroy(buffer);
}

TEST(GantryCApi, LocalBuffersAreFencedByTheirGeneration) {
  OpenClient it;
  gantry_buffer* buffer = nullptr;
  gantry_transfer* transfer = nullptr;
  ASSERT_OK(it.Register("b", 0, 10, &buffer));
  ASSERT_OK(it.Submit(buffer, &transfer, 20));
  const FakeRequest request = it.sidecar.requests().back();
  EXPECT_EQ(request.target, "/v1/transfers?wait_ms=20");
  EXPECT_EQ(nlohmann::json::from_cbor(request.body)["local"][0], "b@00000000000000aa");
  EXPECT_EQ(nlohmann::json::from_cbor(request.body)["id"], gantry_transfer_id(transfer));
  gantry_transfer_destroy(transfer);
  gantry_buffer_destroy(buffer);
}

TEST(GantryCApi, TransfersThatMakeNoSenseAreRefusedHere) {
  OpenClient it;
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(it.Register("b", 0, 10, &buffer));
  const size_t before = it.sidecar.requests().size();
  gantry_transfer* transfer = nullptr;
  gantry_transfer_spec spec = {};
  const auto code = [&] { return CodeOf(gantry_transfer_submit(it.client, &spec, 0, &transfer)); };
  EXPECT_EQ(code(), "invalid_argument");  // no local buffer
  spec.local = &buffer;
  spec.local_count = 1;
  EXPECT_EQ(code(), "invalid_argument");  // no remote one
  const char* remote[] = {"w/x", nullptr};
  spec.remote = remote;
  spec.remote_count = 2;
  EXPECT_EQ(code(), "invalid_argument");  // a remote one that is NULL
  spec.remote_count = 1;
  EXPECT_EQ(code(), "invalid_argument");  // nothing to move
  const uint64_t block = 0;
  spec.local_blocks = &block;
  spec.block_count = 1;
  EXPECT_EQ(code(), "invalid_argument");  // only one list
  spec.remote_blocks = &block;
  spec.operation = 2;
  EXPECT_EQ(code(), "invalid_argument");
  spec.operation = GANTRY_WRITE;
  spec.id = "a\r\nb";
  EXPECT_EQ(code(), "invalid_argument");
  spec.id = nullptr;
  for (const int executor : {-1, 3}) {
    spec.executor = executor;
    EXPECT_EQ(code(), "invalid_argument");
  }
  spec.executor = GANTRY_EXECUTOR_ANY;
  spec.user_data = "a\xff";  // no UTF-8
  EXPECT_EQ(code(), "invalid_argument");
  spec.user_data = nullptr;
  spec.hold = "a\xff";
  EXPECT_EQ(code(), "invalid_argument");
  spec.hold = nullptr;
  const gantry_message message = {"w", nullptr, 0, "\xc3"};
  spec.notify = &message;
  EXPECT_EQ(code(), "invalid_argument");
  EXPECT_EQ(it.sidecar.requests().size(), before);
  gantry_buffer_destroy(buffer);
}

TEST(GantryCApi, NumbersThatWouldBeLeftOutAreRefused) {
  OpenClient it;
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(it.Register("b", 0, 10, &buffer));
  const size_t before = it.sidecar.requests().size();
  const gantry_piece piece = {gantry_arena_data(it.arena), 4096};
  for (const auto& [bytes, stride, blocks] :
       std::vector<std::array<uint64_t, 3>>{{0, 64, 0}, {0, 0, 4}, {64, 64, 0}}) {
    gantry_buffer_spec spec = {"c", &piece, 1, 0, bytes, stride, blocks};
    gantry_buffer* none = nullptr;
    EXPECT_EQ(CodeOf(gantry_buffers_register(it.client, &spec, 1, &none)), "invalid_argument");
  }
  const gantry_view_pair pair = {"b", nullptr};
  for (const gantry_block_slice& slice : {gantry_block_slice{64, 0, 0, 64}, {0, 64, 64, 0}}) {
    const gantry_view_group group = {0, &pair, 1, &slice, 1, 0, 0};
    const gantry_view_spec spec = {nullptr, nullptr, "w", &group, 1};
    gantry_view* none = nullptr;
    EXPECT_EQ(CodeOf(gantry_view_create(it.client, &spec, &none)), "invalid_argument");
  }
  EXPECT_EQ(it.sidecar.requests().size(), before);
  it.sidecar.On("/v1/views", [](const FakeRequest&) {
    return FakeSidecar::Json(201, R"({"id":"v","groups":[],"pairs":[]})");
  });
  const gantry_view_spec view_spec = {"v", nullptr, "w", nullptr, 0};
  gantry_view* view = nullptr;
  ASSERT_OK(gantry_view_create(it.client, &view_spec, &view));
  const uint64_t block = 0;
  const gantry_block_group group = {0, &block, 1, &block, 1, 3, 0};
  gantry_transfer_spec spec = {};
  spec.view = view;
  spec.groups = &group;
  spec.group_count = 1;
  gantry_transfer* transfer = nullptr;
  EXPECT_EQ(CodeOf(gantry_transfer_submit(it.client, &spec, 0, &transfer)), "invalid_argument");
  const char* remote = "w/x";
  spec = {};
  spec.local = &buffer;
  spec.local_count = 1;
  spec.remote = &remote;
  spec.remote_count = 1;
  spec.local_blocks = spec.remote_blocks = &block;
  spec.block_count = 1;
  spec.require_path = "";
  EXPECT_EQ(CodeOf(gantry_transfer_submit(it.client, &spec, 0, &transfer)), "invalid_argument");
  gantry_view_destroy(view);
  gantry_buffer_destroy(buffer);
}

TEST(GantryCApi, RequestReachesTheRestOfTheInterface) {
  OpenClient it;
  it.sidecar.On("/v1/peers", [](const FakeRequest& request) {
    return FakeSidecar::Json(200, request.method == "GET" ? R"({"peers":[]})" : request.body);
  });
  char* answer = nullptr;
  ASSERT_OK(gantry_client_request(it.client, "GET", "/v1/peers", nullptr, 0, &answer));
  EXPECT_STREQ(answer, R"({"peers":[]})");
  gantry_free(answer);
  EXPECT_EQ(CodeOf(gantry_client_request(it.client, "BREW", "/v1/peers", nullptr, 0, &answer)),
            "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_client_request(it.client, "GET", "/a b", nullptr, 0, &answer)),
            "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_client_request(it.client, "GET", "/a\r\nX: y", nullptr, 0, &answer)),
            "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_client_request(it.client, "GET", "v1", nullptr, 0, &answer)),
            "invalid_argument");
}

}  // namespace
}  // namespace gantry::client
