"""The prompts of the tests, each under a name, as token ids. The monolithic engine answers all of them beforehand."""

import random

from backends import BLOCK, PATHS

_BYTES = 256

# At, before and behind the end of a block, and longer ones.
LENGTHS = [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 200, 500]
TOGETHER = 16

# A model with states has its last one before the prompt's last token.
STATE_BLOCK = 64  # tokens
STATE_LENGTHS = [STATE_BLOCK + 1, STATE_BLOCK + 2, 2 * STATE_BLOCK + 1]


def make(name, length):
    """The same for the same name and length, and another one for each name."""
    numbers = random.Random(f"{name} {length}")
    return [numbers.randrange(_BYTES) for _ in range(length)]


PROMPTS = {}
for _path in PATHS:
    PROMPTS |= {f"{_path} {length}": make(_path, length) for length in LENGTHS}
    PROMPTS |= {f"{_path} together {i}": make(f"{_path} together {i}", 100 + 37 * i) for i in range(TOGETHER)}
for _name in ("cached", "reversed", "other block size", "prefill sidecar lost", "prefill sidecar back",
              "decode sidecar lost", "decode sidecar back", "after an abort",
              "made up", "measured", "measured failure", "waits", "in part"):
    PROMPTS[_name] = make(_name, 200)
PROMPTS |= {f"states {length}": make("states", length) for length in STATE_LENGTHS}
PROMPTS["killed"] = make("killed", 500)
MANY = [f"many {length}" for length in range(1, 500, 21)]  # of random choices among them
PROMPTS |= {name: make("many", int(name.split()[1])) for name in MANY}
