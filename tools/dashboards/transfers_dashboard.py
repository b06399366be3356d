"""Gantry transfers: whether bytes move, how fast, by which path, and what is in their way."""

from grafana import GREEN, RED, YELLOW, Dashboard

# Raised with each change that users should see as a new version.
VERSION = 3


def _rate(metric, by, selector="@"):
    return f"sum by ({by}) (rate({metric}{{{selector}}}[$__rate_interval]))"


def _p99(histogram, by):
    return f"histogram_quantile(0.99, {_rate(histogram + '_bucket', by + ', le')})"


def _of_sidecars(expression):
    """Metrics of processes are those of all targets otherwise."""
    return expression + " and on (job, instance) gantry_build_info{@}"


def make():
    board = Dashboard("gantry-transfers", "Gantry transfers",
                      "Health of the transfers of Gantry's sidecars: speed, latency, paths, errors, memory.",
                      "gantry_build_info", VERSION)
    _health(board)
    _throughput(board)
    _latency(board)
    _failures(board)
    _queues(board)
    _memory(board)
    _peers(board)
    _rdma(board)
    _vllm(board)
    return board.json()


def _health(board):
    board.row("Health")
    board.stat("Sidecars", "Sidecars that answer Prometheus.", "count(gantry_build_info{@})")
    board.stat("Copy workers ready", "Part of the copy workers that are ready. Without any a sidecar is not ready.",
               'sum(gantry_workers{state="ready", @}) / sum(gantry_workers{@})', "percentunit", (RED, (0.5, YELLOW), (1, GREEN)))
    board.stat("Peers down", "Sidecars that others were told of and do not reach.", 'sum(gantry_peers{state="down", @})',
               thresholds=(GREEN, (1, RED)))
    board.stat("Transfers that fail", "Part of the transfers that ended in the last five minutes that failed or passed their deadline.",
               'sum(rate(gantry_transfers_total{outcome=~"failed|expired", @}[5m]))'
               ' / sum(rate(gantry_transfers_total{outcome=~"succeeded|failed|expired", @}[5m]))',
               "percentunit", (GREEN, (0.01, YELLOW), (0.05, RED)))
    board.stat("Access errors, last hour", "Requests and attempts that touched what may not or cannot be touched.",
               "sum(increase(gantry_access_errors_total{@}[1h]))", thresholds=(GREEN, (1, RED)))
    board.stat("On a slower path, last hour", "Transfers that took a slower path although a faster one works on this side.",
               "sum(increase(gantry_path_fallbacks_total{@}[1h]))", thresholds=(GREEN, (1, YELLOW)))
    board.table("By pod", "Each sidecar, now.",
                ("Workloads", "sum by (namespace, pod) (gantry_workloads{@})", "short"),
                ("Buffers", "sum by (namespace, pod) (gantry_buffers{@})", "short"),
                ("Registered", "sum by (namespace, pod) (gantry_registered_bytes{@})", "bytes"),
                ("In flight", "sum by (namespace, pod) (gantry_transfers_inflight{@})", "short"),
                ("Throughput", "sum by (namespace, pod) (rate(gantry_transfer_bytes_total{@}[$__rate_interval]))", "Bps"),
                ("Peers up", 'sum by (namespace, pod) (gantry_peers{state="up", @})', "short"),
                ("Workers ready", 'sum by (namespace, pod) (gantry_workers{state="ready", @})', "short"),
                ("Started", f"1000 * max by (namespace, pod) ({_of_sidecars('process_start_time_seconds{@}')})", "dateTimeAsIso"))


def _throughput(board):
    board.row("Bytes and transfers")
    board.timeseries("Throughput", "Bytes moved for certain in each second of the clock. Counted when a transfer ends.", "Bps",
                     (_rate("gantry_transfer_bytes_total", "path, op"), "{{path}} {{op}}"), stacked="normal")
    board.timeseries("Speed", "Bytes over busy time: the time in which at least one transfer of that path was moving, overlapping ones"
                     " counted once. What the path of a sidecar does while it has something to do.", "Bps",
                     (f"{_rate('gantry_transfer_bytes_total', 'path, op')} / {_rate('gantry_transfer_active_seconds_total', 'path, op')}",
                      "{{path}} {{op}}"))
    board.timeseries("Transfers by outcome", "Each transfer once, when it ends. Rejected ones were never accepted.", "ops",
                     (_rate("gantry_transfers_total", "outcome"), "{{outcome}}"), stacked="normal")
    board.timeseries("Chunks moved", "Copies, frames or work requests after merging and cutting. Failed or retried ones at a steady rate"
                     " mean a bad path.", "ops", (_rate("gantry_transfer_chunks_total", "path, outcome") + " > 0", "{{path}} {{outcome}}"),
                     none="none")
    board.timeseries("Ranges", "Submitted by callers, and left after joining contiguous ones. Equal lines: nothing was contiguous.", "ops",
                     (_rate("gantry_transfer_descriptors_total", "stage"), "{{stage}}"))
    board.timeseries("Jobs between GPUs", "Parts of transfers of GPU memory: by the GPUs' copy engines, or by a kernel.", "ops",
                     (_rate("gantry_ipc_jobs_total", "plan"), "{{plan}}"), stacked="normal")


def _latency(board):
    board.row("Latency")
    board.quantiles("Time of a transfer", "From admission to outcome, without rejected ones.", "gantry_transfer_duration_seconds")
    board.timeseries("Time by path, p99", "99 of 100 transfers of that path take no longer.", "s",
                     (_p99("gantry_transfer_duration_seconds", "path"), "{{path}}"))
    board.timeseries("Time by stage, p99", "Admit: checks and planning. Fence: until it was reached. Queue: until the first chunk is"
                     " posted. Quiesce: until nothing can move any more.", "s",
                     (_p99("gantry_transfer_stage_duration_seconds", "stage"), "{{stage}}"))
    board.heatmap("Times", "How many transfers took how long.", "s", "gantry_transfer_duration_seconds")
    board.heatmap("Sizes", "How many transfers moved how many bytes.", "bytes", "gantry_transfer_size_bytes")


def _failures(board):
    board.row("Paths, failures and retries")
    board.timeseries("Path mix", "Which path transfers were given.", "ops",
                     (_rate("gantry_path_selected_total", "path"), "{{path}}"), stacked="percent")
    board.events("Fallbacks by reason", "Transfers that took the second path although the first is faster and works here, and what kept"
                 " them off it. `paths` of the transfer and of GET /v1/peers say it in words.",
                 _rate("gantry_path_fallbacks_total", "from, to, reason"), "{{from}} to {{to}}: {{reason}}")
    board.events("Access errors", "Memory that may not or cannot be touched, by reason: refused requests (path none) and failed attempts.",
                 _rate("gantry_access_errors_total", "path, reason"), "{{path}} {{reason}}")
    board.events("Errors of paths", "A path failed under a transfer, for each attempt.",
                 _rate("gantry_transport_errors_total", "path, reason"), "{{path}} {{reason}}")
    board.events("Retries", "Transfers that were begun again, once, with a fresh description of their remote buffers or on another"
                 " path.", _rate("gantry_transfer_retries_total", "reason"), "{{reason}}")
    board.timeseries("Notifications", "Messages between workloads, by what became of them.", "ops",
                     (_rate("gantry_notifications_total", "direction, outcome") + " > 0", "{{direction}} {{outcome}}"), none="none")


def _queues(board):
    board.row("Queues and workers")
    board.timeseries("In flight", "Transfers that have not ended: queued until their first chunk is posted, then running.", "short",
                     ("sum by (state) (gantry_transfers_inflight{@})", "{{state}}"), stacked="normal")
    board.timeseries("Bytes in flight", "What the unfinished transfers have to move.", "bytes",
                     ("sum(gantry_transfer_inflight_bytes{@})", "bytes"))
    board.timeseries("Holds", "Promises that have not ended, and those that expired before they were read.", "short",
                     ("sum(gantry_holds{@})", "held"),
                     ("sum(increase(gantry_hold_expirations_total{@}[$__rate_interval]))", "expired"))
    board.timeseries("Copy workers", "Processes that copy: ready or not, with a context on a GPU, without one that they asked for, and"
                     " those that were replaced after they died.", "short",
                     ("sum by (state) (gantry_workers{@})", "{{state}}"), ("sum(gantry_ipc_workers{@})", "on a GPU"),
                     ("sum(gantry_ipc_workers_refused{@})", "refused by a GPU"),
                     ("sum(increase(gantry_worker_restarts_total{@}[$__rate_interval]))", "restarted"))
    board.timeseries("Requests by answer", "Of the REST interface.", "ops",
                     (_rate("gantry_http_requests_total", "code"), "{{code}}"))
    board.timeseries("Time of requests, p99", "By route, with the time that wait_ms asked for.", "s",
                     (_p99("gantry_http_request_duration_seconds", "route") + " >= 0", "{{route}}"))


def _memory(board):
    board.row("Memory")
    board.timeseries("Bytes registered and mapped", "Registered: sum of the buffers' lengths. Mapped: sum of the allocations that"
                     " they lie in. On GPUs: own and peers', mapped for the workers. Mapped without registered is a leak.", "bytes",
                     ("sum(gantry_registered_bytes{@})", "registered"), ("sum(gantry_mapped_bytes{@})", "mapped"),
                     ("sum(gantry_ipc_mapped_bytes{@})", "mapped on GPUs"))
    board.timeseries("Registered", "What workloads have registered.", "short", ("sum(gantry_workloads{@})", "workloads"),
                     ("sum(gantry_buffers{@})", "buffers"), ("sum(gantry_allocations{@})", "allocations"),
                     ("sum(gantry_mappings{@})", "mappings in workers"))
    board.timeseries("Registrations", "Requests to register buffers: all or nothing.", "ops",
                     (_rate("gantry_registrations_total", "outcome"), "{{outcome}}"))
    board.timeseries("Descriptors", "Held for workloads, of peers' memory, and those of this sidecar that wait for peers.", "short",
                     ("sum(gantry_fds_held{@})", "of workloads"), ("sum by (state) (gantry_peer_fds{@})", "of peers, {{state}}"))
    board.timeseries("Descriptors in use", "Part of those that the process may have open.", "percentunit",
                     (_of_sidecars("process_open_fds{@} / process_max_fds{@}"), "{{namespace}}/{{pod}}"),
                     thresholds=(GREEN, (0.8, RED)))
    board.timeseries("Staging memory in use", "Slices that belong to a request, as part of each side's half of --staging-bytes.",
                     "percentunit", ("sum by (side) (gantry_staging_slices_in_use{@}) * 524288"
                                     " / scalar(sum(gantry_staging_bytes{@}) / 2)", "{{side}}"),
                     thresholds=(GREEN, (0.9, RED)))
    board.timeseries("Staged", "Copied between GPUs and the host's staging memory, for tcp and bounce.", "Bps",
                     (_rate("gantry_staging_bytes_total", "direction"), "{{direction}}"))
    board.timeseries("Processors", "Of the sidecars themselves; copy workers are processes of their own.", "short",
                     (_of_sidecars("rate(process_cpu_seconds_total{@}[$__rate_interval])"), "{{namespace}}/{{pod}}"))
    board.timeseries("Resident memory", "Of the sidecars themselves, with what they share with workloads.", "bytes",
                     (_of_sidecars("process_resident_memory_bytes{@}"), "{{namespace}}/{{pod}}"))


def _peers(board):
    board.row("Peers")
    board.timeseries("Peers by state", "Other sidecars that these were told of.", "short",
                     ("sum by (state) (gantry_peers{@})", "{{state}}"), stacked="normal")
    board.events("Peers turned away", "By what was wrong: certificate, name, or token.", _rate("gantry_peer_refusals_total", "reason"),
                 "{{reason}}")
    board.timeseries("TCP connections", "Open ones for data, made here (initiator) and made by peers (target).", "short",
                     ("sum by (side) (gantry_tcp_connections{@})", "{{side}}"))
    board.timeseries("TCP connections made", "Opened and failed. Opened ones at a steady rate: connections break.", "ops",
                     (_rate("gantry_tcp_connections_opened_total", "side"), "{{side}} opened"),
                     (_rate("gantry_tcp_connection_failures_total", "side"), "{{side}} failed"))
    board.timeseries("Served over TCP", "Of these sidecars' buffers, moved by peers.", "Bps",
                     (_rate("gantry_tcp_served_bytes_total", "operation"), "{{operation}}"), stacked="normal")
    board.timeseries("Events lost", "Dropped from a workload's log before it read them.", "ops",
                     ("sum by (namespace, pod) (rate(gantry_events_lost_total{@}[$__rate_interval]))", "{{namespace}}/{{pod}}"))


def _rdma(board):
    real = 'device!="none", @'
    board.row("RDMA devices")
    board.state_timeline("Ports", "Whether the port of each device is active. Nothing goes over one that is not.",
                         f"gantry_rdma_port_active{{{real}}}", "{{pod}} {{device}}", "active", "down")
    board.timeseries("Throughput by device", "Moved by work requests that were done. Devices that have the same buffers have much the"
                     " same rate.", "Bps", (_rate("gantry_rdma_bytes_total", "device, op", real), "{{device}} {{op}}"))
    board.timeseries("Chunks registered", "Memory regions of buffers with each device. Growth without buffers is a leak.", "short",
                     (f"sum by (device) (gantry_chunks{{{real}}})", "{{device}}"))
    board.timeseries("Work requests in flight", "As part of those that may be (--rdma-work-requests). At 100% all the time, more or"
                     " larger ones may be faster.", "percentunit",
                     (f"sum by (device) (gantry_rdma_work_requests_inflight{{{real}}}) /"
                      f" sum by (device) (gantry_rdma_work_requests_inflight_max{{{real}}})", "{{device}}"))
    board.events("Work requests sent again", "That came back undone: a bad device, cable or route.",
                 _rate("gantry_rdma_work_requests_retried_total", "device", real), "{{device}}")
    board.timeseries("Queue pairs and connections", "Queue pairs of the connections that these sidecars made; connections of either side.",
                     "short", (f"sum by (device) (gantry_rdma_queue_pairs{{{real}}})", "queue pairs of {{device}}"),
                     ("sum by (side) (gantry_rdma_connections{@})", "connections, {{side}}"))


def _vllm(board):
    """What vLLM exports about the connector; nothing without one."""
    board.row("vLLM")
    board.quantiles("Handover of a prompt", "From the decoder's step that asked for the blocks until the last of them was there, of"
                    " reads that succeeded.", "vllm:gantry_xfer_time_seconds")
    board.timeseries("Parts of a handover, p99", "The call that submits the read, and the sidecar's time from admission until the end."
                     " The rest is the connector's queue and a first look at the peer.", "s",
                     (_p99("vllm:gantry_post_time_seconds", "namespace"), "{{namespace}} submit"),
                     (_p99("vllm:gantry_sidecar_time_seconds", "namespace"), "{{namespace}} sidecar"))
    board.timeseries("Prompts' bytes by path", "Read by decoders. Counted when a read ends.", "Bps",
                     (_rate("vllm:gantry_path_bytes_total", "path"), "{{path}}"), stacked="normal")
    board.timeseries("Handovers", "Reads that succeeded by path, those that failed, and prompts that the decoder computed, in part or"
                     " whole, instead of reading them.", "ops",
                     (_rate("vllm:gantry_path_transfers_total", "path") + " > 0", "{{path}}"),
                     ("sum(rate(vllm:gantry_num_failed_transfers_total{@}[$__rate_interval]))", "failed"),
                     ("sum(rate(vllm:gantry_num_recomputed_reqs_total{@}[$__rate_interval]))", "computed instead"))
    board.timeseries("Blocks that did not arrive", "Of reads that failed: what may not have arrived whole, and what was computed"
                     " instead.", "ops", ("sum(rate(vllm:gantry_num_failed_blocks_total{@}[$__rate_interval]))", "failed"),
                     ("sum(rate(vllm:gantry_num_recomputed_blocks_total{@}[$__rate_interval]))", "computed instead"))
    board.timeseries("Holds, leases and messages of engines", "Prompts that no decoder had read in time, messages to prefillers that did"
                     " not arrive, and leases taken anew after a sidecar was lost.", "short",
                     ("sum(increase(vllm:gantry_num_kv_expired_reqs_total{@}[$__rate_interval]))", "expired holds"),
                     ("sum(increase(vllm:gantry_num_failed_notifications_total{@}[$__rate_interval]))", "failed messages"),
                     ("sum(increase(vllm:gantry_num_reconnects_total{@}[$__rate_interval]))", "reconnects"))
