// Settings of copy workers, transfers and the limits on what workloads and peers take.
#include "sidecar/app/settings.h"

namespace gantry::settings {
namespace {

using enum Level;
using Config = SidecarConfig;

constexpr std::string_view kGpuCopies[] = {"auto", "engines", "kernel"};

constexpr Setting kCopyWorkers[] = {
    {"--workers", &Config::workers, kNormal, Range{0, 64},
     "Copy workers: the processes that copy. Set it where the sidecar may use fewer processors "
     "than the node has.",
     "one for each processor, at most 8"},
    {"--gpu-workers", &Config::gpu_workers, kNormal, Range{-1, 64},
     "Copy workers that take a context on a GPU, some 260 MiB each, and 520 for a moment. With 0 "
     "no GPU memory can be registered.",
     "four, or three for each GPU if that is more"},
    {"--gpu-copies", &Config::gpu_copies, kTuning, Words(kGpuCopies),
     "Copies between GPUs are made by copy engines, by a kernel, or by the better one of each "
     "transfer. Set engines where no workload may be slowed."},
    {"--gpu-copy-costs", &Config::gpu_copy_costs, kExpert, kUnbounded,
     "Costs of copies between GPUs that replace the measured ones, as block_ns=700,row_ps=20000. "
     "GET /v1/status shows the names and the values in force.",
     "each is measured at the start"},
    {"--spin-us", &Config::spin_us, kTuning, Range{0, 1'000'000},
     "Microseconds for which idle threads and copy workers look for more work before they sleep. "
     "Raise it above the time between requests where processors wake up slowly.",
     "100, and 400 for HTTP threads"},
    {"--gpu-retry-ms", &Config::gpu_retry_ms, kExpert, Range{1, 3'600'000},
     "Milliseconds until a worker asks a GPU again that refused it a context. Each refusal doubles "
     "it, up to ten times as long."},
    {"--worker-restart-ms-max", &Config::worker_restart_ms_max, kExpert, kTime,
     "Milliseconds of the longest pause between restarts of a copy worker that keeps dying."},
    {"--unsealed-memory", &Config::unsealed_memory, kNormal, kUnbounded,
     "Take host memory whose owner can truncate its file, as in /dev/shm. Transfers of a truncated "
     "file fail, and pages that are missing are charged to the sidecar."},
};

constexpr Setting kTransfers[] = {
    {"--deadline-ms-default", &Config::deadline_ms_default, kTuning, kTime,
     "Milliseconds until the deadline of a transfer that names none; at most --deadline-ms-max."},
    {"--deadline-ms-max", &Config::deadline_ms_max, kTuning, kTime,
     "Milliseconds of the longest deadline that a transfer may ask for."},
    {"--quiesce-ms-max", &Config::quiesce_ms_max, kExpert, Range{1, Config::kQuiesceMsLimit},
     "Milliseconds after a deadline or a cancel, until the copy workers of a transfer that is not "
     "quiet are killed."},
    {"--workload-end-ms", &Config::workload_end_ms, kExpert, kTime,
     "Milliseconds for transfers of others to end in the buffers of a workload that ended. The "
     "removal goes on in the background afterwards."},
    {"--chunk-bytes-max", &Config::chunk_bytes_max, kExpert, kPositive,
     "Bytes of the longest contiguous copy; a longer one is cut, so that workers share it. A "
     "strided copy between GPUs has up to 4 MiB."},
};

constexpr Setting kLimits[] = {
    {"--transfers-max", &Config::transfers_max, kTuning, kPositive,
     "Transfers that are not finished. One more is refused with resource_exhausted."},
    {"--descriptors-max", &Config::descriptors_max, kTuning, kPositive,
     "Descriptors of one transfer: its ranges, or its blocks times its buffers."},
    {"--events-max", &Config::events_max, kTuning, kPositive,
     "Events kept for completions:poll and /v1/events, at some 1.7 KiB each. Lower it to save "
     "memory."},
    {"--workloads-max", &Config::workloads_max, kTuning, kPositive,
     "Registered workloads. A 57th of the process's limit of descriptors is the most in any case."},
    {"--buffers-max", &Config::buffers_max, kTuning, kPositive, "Registered buffers."},
    {"--body-bytes-max", &Config::body_bytes_max, kTuning, kPositive,
     "Bytes of the largest request body. Raise it for transfers with longer lists of blocks."},
    {"--connections-max", &Config::connections_max, kTuning, kPositive,
     "Open REST connections; beyond, one gives way. A thirteenth of the process's limit of "
     "descriptors is the most in any case."},
    {"--http-threads-max", &Config::http_threads_max, kTuning, Range{4, 4096},
     "Requests served at the same time, those that wait included. Three quarters of the REST "
     "connections are the most in any case."},
    {"--fds-max", &Config::fds_max, kTuning, kCount,
     "Descriptors held for workloads; each allocation takes one or two.",
     "half of the process's limit, less 128, which is the most there can be"},
    {"--peer-fds-max", &Config::peer_fds_max, kTuning, kCount,
     "Descriptors of peers' memory held here. As many of this sidecar's own may wait for peers to "
     "fetch them.",
     "an eighth of the process's limit for each, which is the most there can be"},
};

constexpr Group kCopyGroups[] = {
    {"Copy workers", kCopyWorkers}, {"Transfers", kTransfers}, {"Limits", kLimits}};

}  // namespace

std::span<const Group> CopySettings() { return kCopyGroups; }

}  // namespace gantry::settings
