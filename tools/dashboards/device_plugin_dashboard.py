"""Gantry device plugin: whether nodes have slots, and whether containers get them."""

from grafana import BLUE, GREEN, RED, YELLOW, Dashboard

# Raised with each change that users should see as a new version.
VERSION = 2


def make():
    board = Dashboard("gantry-device-plugin", "Gantry device plugin",
                      "Slots of the nodes, how they are bound to containers, and the plugin's standing with the kubelet.",
                      "gantry_dp_build_info", VERSION)
    _health(board)
    _slots(board)
    _node(board)
    return board.json()


def _health(board):
    board.row("Health")
    board.stat("Plugins", "Device plugins that answer Prometheus: one a node.", "count(gantry_dp_build_info{@})")
    board.stat("Connected to the kubelet", "Part of the plugins whose list of slots the kubelet reads.",
               "avg(gantry_dp_kubelet_connected{@})", "percentunit", (RED, (1, GREEN)))
    board.stat("Healthy", "Part of the plugins whose slots are healthy.", "avg(gantry_dp_healthy{@})", "percentunit", (RED, (1, GREEN)))
    board.stat("Slots bound", "Part of all slots.", 'sum(gantry_dp_slots{state="bound", @}) / sum(gantry_dp_slots{@})', "percentunit",
               (GREEN, (0.8, YELLOW), (0.9, RED)))
    board.stat("Binds, last hour", "Containers that were given a slot.",
               'sum(increase(gantry_dp_prestart_duration_seconds_count{outcome="succeeded", @}[1h]))', thresholds=(BLUE,))
    board.stat("Failed binds, last hour", "Containers that did not start for want of a slot's devices.",
               "sum(increase(gantry_dp_bind_failures_total{@}[1h]))", thresholds=(GREEN, (1, RED)))
    board.state_timeline("Kubelet", "Whether the kubelet reads the list of slots.", "gantry_dp_kubelet_connected{@}",
                         "{{namespace}}/{{pod}}", "connected", "not connected")
    board.state_timeline("Reasons to be unhealthy", "A reason that holds makes all slots of that node unhealthy.",
                         "gantry_dp_unhealthy{@}", "{{pod}} {{reason}}", "fine", "holds", bad_value=1)
    board.timeseries("Registrations", "With the kubelet. More than one: it was restarted, or lost the plugin.", "ops",
                     ("sum by (outcome) (rate(gantry_dp_registrations_total{@}[$__rate_interval]))", "{{outcome}}"))


def _slots(board):
    board.row("Slots")
    board.timeseries("Slots by state", "Free, bound to a container, or unhealthy.", "short",
                     ("sum by (state) (gantry_dp_slots{@})", "{{state}}"), stacked="normal")
    board.timeseries("Binds", "Calls of PreStartContainer, by outcome.", "ops",
                     ("sum by (outcome) (rate(gantry_dp_prestart_duration_seconds_count{@}[$__rate_interval]))", "{{outcome}}"))
    board.events("Failed binds", "By reason.",
                 "sum by (reason) (rate(gantry_dp_bind_failures_total{@}[$__rate_interval]))", "{{reason}}")
    board.quantiles("Time to bind", "Of PreStartContainer. The kubelet gives up after 30 s.", "gantry_dp_prestart_duration_seconds")
    board.quantiles("Time to allocate", "Of Allocate, before a container is made.", "gantry_dp_allocate_duration_seconds")
    board.heatmap("Times to bind", "How many calls of PreStartContainer took how long.", "s", "gantry_dp_prestart_duration_seconds",
                  width=8)


def _node(board):
    board.row("Nodes")
    board.table("By node", "Each plugin, now.",
                ("Connected", "sum by (namespace, pod) (gantry_dp_kubelet_connected{@})", "short"),
                ("Healthy", "sum by (namespace, pod) (gantry_dp_healthy{@})", "short"),
                ("Free", 'sum by (namespace, pod) (gantry_dp_slots{state="free", @})', "short"),
                ("Bound", 'sum by (namespace, pod) (gantry_dp_slots{state="bound", @})', "short"),
                ("Unhealthy", 'sum by (namespace, pod) (gantry_dp_slots{state="unhealthy", @})', "short"),
                ("Sidecars", "sum by (namespace, pod) (gantry_dp_sidecars{@})", "short"),
                ("CDI files", "sum by (namespace, pod) (gantry_dp_cdi_files{@})", "short"),
                ("Failed binds, last day", "sum by (namespace, pod) (increase(gantry_dp_bind_failures_total{@}[1d]))", "short"))
    board.state_timeline("RDMA ports", "Whether the port of each device of a node is active.",
                         'gantry_dp_rdma_port_active{device!="none", @}', "{{pod}} {{device}}", "active", "down", width=12)
    board.timeseries("CDI files", "Of slots, now, and removed by the reconciliation as their containers were gone.", "short",
                     ("sum(gantry_dp_cdi_files{@})", "there"),
                     ("sum(increase(gantry_dp_cdi_files_removed_total{@}[$__rate_interval]))", "removed"), width=12)
