"""How vLLM is started: on the CPU in the environment that tests/vllm/environment makes, or on this machine's GPU.

GANTRY_VLLM=gpu  takes the GPU, and vLLM by the Python that runs the tests; GANTRY_VLLM_ENVIRONMENT is the folder of model/
GANTRY_VLLM_LAYOUT  of a GPU's cache: "NHD" (vLLM's default), "HND", or "cross", which is one tensor of all layers; "graphs" is
                    NHD with compiled models and CUDA graphs. With two GPUs: "apart", which is NHD with the decoder on the second one,
                    and "ranks" and "ranks-HND", where an engine of two ranks, one on each, comes beside these
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ON_GPU = os.environ.get("GANTRY_VLLM") == "gpu"
RUN = os.environ.get("GANTRY_VLLM_LAYOUT", "NHD")
LAYOUT = {"graphs": "NHD", "apart": "NHD", "ranks": "NHD", "ranks-HND": "HND"}.get(RUN, RUN)
APART = RUN in ("apart", "ranks", "ranks-HND")
PATHS = ["ipc", "tcp"] if ON_GPU else ["shm", "tcp"]
BLOCK = 16 if ON_GPU else 32  # tokens

# vLLM's arguments; in all engines the same, so that their tokens can be compared. With bfloat16 they differ now and then: a
# prompt's last token is computed again in another company, and rounded differently.
ENGINE = {"dtype": "float32", "max_model_len": 1024, "block_size": BLOCK, "kv_cache_memory_bytes": 64 << 20,
          "max_num_seqs": 16, "enforce_eager": True}
if ON_GPU:
    ENGINE |= {"attention_backend": "TRITON_ATTN", "gpu_memory_utilization": 0.1, "enforce_eager": RUN != "graphs"}
else:
    ENGINE |= {"max_num_batched_tokens": 192}  # of a step: longer prompts are computed in chunks

# The connector's settings, beside those of a case.
CONNECTOR = {"cross_layers": True} if ON_GPU and LAYOUT == "cross" else {}


def python_of(environment):
    return sys.executable if ON_GPU else f"{environment}/venv/bin/python"


def serve_of(environment):
    """The command `vllm serve`."""
    return [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"] if ON_GPU else [f"{environment}/venv/bin/vllm", "serve"]


def flags():
    """ENGINE for the command line."""
    words = []
    for name, value in ENGINE.items():
        words += [] if value is False else [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words


def variables():
    """The environment variables of a process that imports vLLM."""
    path = os.pathsep.join([f"{ROOT}/client/python", f"{ROOT}/connectors/vllm", *filter(None, [os.environ.get("PYTHONPATH")] * ON_GPU)])
    chosen = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if "GANTRY_LIB_DIR" in os.environ:
        chosen.setdefault("GANTRY_LIBRARY", f"{os.environ['GANTRY_LIB_DIR']}/libgantry.so")
    chosen |= _of_gpu() if ON_GPU else {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    for unwanted in ("PYTHONDONTWRITEBYTECODE", "VLLM_CPU_KVCACHE_SPACE"):
        chosen.pop(unwanted, None)
    return chosen


def _of_gpu():
    # Exact products: a prompt's last token is computed by other kernels where its blocks were read.
    chosen = {"OMP_NUM_THREADS": "2", "VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_HOST_IP": "127.0.0.1",
              "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "TRITON_F32_DEFAULT": os.environ.get("TRITON_F32_DEFAULT", "ieee"),
              # Ranks add up by NCCL without the switches' multicast, which not every machine lets its guests use.
              "NCCL_NVLS_ENABLE": "0", "VLLM_ALLREDUCE_USE_SYMM_MEM": "0"}
    if LAYOUT == "cross":
        chosen["VLLM_USE_V2_MODEL_RUNNER"] = "0"  # the newer runner has one tensor for each layer always
    else:
        chosen["VLLM_KV_CACHE_LAYOUT"] = LAYOUT
    return chosen


def decoders_variables():
    """More of them for a decoder of one rank. Its GPU is the first that it sees."""
    return {"CUDA_VISIBLE_DEVICES": "1"} if ON_GPU and APART else {}


def flags_of_ranks(count):
    """vLLM's arguments for an engine of so many ranks."""
    return ["--tensor-parallel-size", str(count), *(["--disable-custom-all-reduce"] if ON_GPU else [])]


def why_not():
    """Why this machine does not run the cases, or None."""
    if not (ON_GPU and APART):
        return None
    count = len(subprocess.check_output(["nvidia-smi", "-L"]).splitlines())
    return f"the run {RUN} needs two GPUs, and this machine has {count}" if count < 2 else None


def sidecar_prefix():
    """The sidecar's libraries lie beside it where they were brought along; vLLM must not find them."""
    places = [os.environ["GANTRY_BIN_DIR"], *filter(None, [os.environ.get("LD_LIBRARY_PATH")])] if ON_GPU else []
    return ["env", f"LD_LIBRARY_PATH={':'.join(places)}"] if places else []
