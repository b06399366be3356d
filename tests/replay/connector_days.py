"""The days that can be replayed, by name; each is a function of an engines.Day."""

from pull_days import late, pull

DAYS = {"vllm-pull": pull, "vllm-pull-late": late}
