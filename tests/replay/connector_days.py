"""The days that can be replayed, by name; each is a function of an engines.Day."""

import chunk_days
import death_days
import pull_days
import push_days
import rank_days

DAYS = {
    "vllm-pull": pull_days.pull,
    "vllm-pull-late": pull_days.late,
    "vllm-push": push_days.push,
    "mooncake-batch": push_days.batch,
    "mori-layers": push_days.layers,
    "sglang-chunks": chunk_days.chunks,
    "sglang-slices": chunk_days.slices,
    "tp-2-to-4": rank_days.two_to_four,
    "tp-4-to-2": rank_days.four_to_two,
    "tp-replicated": rank_days.replicated,
    "consumer-dies": death_days.consumer,
    "own-sidecar": death_days.own_sidecar,
    "producer-restarts": death_days.producer,
    "sidecar-restarts": death_days.sidecar,
}
