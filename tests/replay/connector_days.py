"""The days that can be replayed, by name; each is a function of an engines.Day."""

from chunk_days import chunks
from death_days import consumer, own_sidecar, producer, sidecar
from pull_days import late, pull
from push_days import layers, push
from rank_days import four_to_two, replicated, two_to_four

DAYS = {"vllm-pull": pull, "vllm-pull-late": late, "vllm-push": push, "mori-layers": layers, "sglang-chunks": chunks,
        "tp-2-to-4": two_to_four, "tp-4-to-2": four_to_two, "tp-replicated": replicated,
        "consumer-dies": consumer, "producer-restarts": producer, "sidecar-restarts": sidecar,
        "own-sidecar": own_sidecar}
