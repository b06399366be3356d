"""Tensor-parallel engines of different sizes: heads are split over ranks, or each rank has all of them (MLA)."""

from paged_cache import Geometry
from pull_days import EXTENSION, PROMPT_BLOCKS, Consumer, Producer, finish

LAYERS, BLOCKS, HEADS, HEAD_BYTES = 80, 1024, 8, 16  # Llama-3.1-70B; 16 tokens of a head are 4 KiB in earnest
# K and V share a block: the heads of K, then those of V. Each head lies together (HND), so ranks' heads do.
DEEPSEEK = Geometry(layers=61, kinds=("kv",), blocks=384, block_bytes=144)  # MLA, 64 tokens a block, 72 KiB in earnest
DEEPSEEK_PROMPT = 128


def llama_70b(ranks):
    return Geometry(layers=LAYERS, kinds=("kv",), blocks=BLOCKS, block_bytes=2 * HEADS // ranks * HEAD_BYTES)


def split(heads_here, heads_there, first_here, first_there, heads):
    """Slices of K and of V: `heads` heads, which are others of the block here and there."""
    return [((kind * heads_here + first_here) * HEAD_BYTES, (kind * heads_there + first_there) * HEAD_BYTES,
             heads * HEAD_BYTES) for kind in range(2)]


def two_to_four(day):
    """Two consumers read each producer's blocks, half of the heads each, by two slices of every block."""
    producer = Producer(day, llama_70b(2), ranks=2)
    consumer = Consumer(day, llama_70b(4), ranks=4, sources=[[rank // 2] for rank in range(4)],
                        slices=lambda rank, _: split(2, 4, 0, rank % 2 * 2, 2))
    exchange(day, producer, consumer, consumers=2)


def four_to_two(day):
    """Each consumer reads from two producers, whose heads go into the two halves of its own."""
    producer = Producer(day, llama_70b(4), ranks=4)
    consumer = Consumer(day, llama_70b(2), ranks=2, sources=[[2 * rank, 2 * rank + 1] for rank in range(2)],
                        slices=lambda _, index: split(4, 2, index * 2, 0, 2))
    exchange(day, producer, consumer, consumers=1)


def exchange(day, producer, consumer, consumers):
    consumer.handshake(producer)
    for number in range((day.requests + 1) // 2):  # the largest of all days
        request = f"r-{number}"
        params = producer.prefill(request, PROMPT_BLOCKS, EXTENSION, consumers)
        consumer.load(params, producer)
        finish(day, producer, consumer, request)
    day.assert_nothing_is_left()


def replicated(day):
    """All four producers have the same; two are read, and the others are told that nobody will."""
    producer = Producer(day, DEEPSEEK, ranks=4)
    consumer = Consumer(day, DEEPSEEK, ranks=2, sources=[[0], [2]])
    consumer.handshake(producer)
    for number in range(day.requests):
        request = f"r-{number}"
        params = producer.prefill(request, DEEPSEEK_PROMPT)
        consumer.load(params, producer)
        for rank, unread in enumerate((1, 3)):
            consumer.engine.processes[rank].do("notify", "p", producer.engine.address(unread), f"unread:{request}", request)
        for _ in range(2):
            rank = day.until(lambda: producer.engine.take_message(f"unread:{request}"), "the word to a rank")[0]
            producer.engine.processes[rank].do("release", request)
        finish(day, producer, consumer, request, [("consumed", 1)] * 2 + [("released", 0)] * 2)
    day.assert_nothing_is_left()
