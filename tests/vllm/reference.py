"""One engine without a connector answers all prompts: reference.py MODEL OUT MORE.

OUT gets JSON, tokens by the prompts' names; MORE has further arguments of vLLM, as JSON.
"""

import json
import sys

from backends import ENGINE
from prompts import PROMPTS
from vllm import LLM, SamplingParams
from vllm_servers import TOKENS


def main():
    model, out, more = sys.argv[1:]
    engine = LLM(model, **ENGINE | json.loads(more))
    said = engine.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS.values()],
                           SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True))
    with open(out, "w", encoding="utf-8") as file:
        json.dump({name: list(answer.outputs[0].token_ids) for name, answer in zip(PROMPTS, said)}, file)


if __name__ == "__main__":
    main()
