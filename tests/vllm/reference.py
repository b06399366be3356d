"""One engine without a connector answers all prompts: reference.py MODEL OUT (JSON, tokens by the prompts' names)."""

import json
import sys

from prompts import PROMPTS
from vllm import LLM, SamplingParams
from vllm_servers import BLOCK, TOKENS


def main():
    model, out = sys.argv[1:]
    engine = LLM(model, dtype="float32", max_model_len=1024, block_size=BLOCK, kv_cache_memory_bytes=64 << 20,
                 enforce_eager=True, max_num_seqs=16)
    said = engine.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS.values()],
                           SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True))
    with open(out, "w", encoding="utf-8") as file:
        json.dump({name: list(answer.outputs[0].token_ids) for name, answer in zip(PROMPTS, said)}, file)


if __name__ == "__main__":
    main()
