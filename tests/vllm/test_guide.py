"""docs/getting_started_vllm.md says the commands that the tests run, and the lines of the log that the code writes."""

import json
import re
import shlex

import pytest
from backends import ENGINE, ON_GPU, ROOT, flags, variables
from vllm_servers import TRANSFER

pytestmark = pytest.mark.skipif(ON_GPU, reason="the guide is for machines without a GPU")

GUIDE = (ROOT / "docs" / "getting_started_vllm.md").read_text()
COMMANDS = "\n".join(re.findall(r"```sh\n(.*?)```", GUIDE, re.S)).replace("\\\n", " ")


def words_of(command, end=r"$"):
    """Returns the words of its first call in the guide."""
    return shlex.split(re.search(rf"(?ms)(?<=\s){re.escape(command)} .*?{end}", COMMANDS).group(), comments=True)


def test_the_engines_are_started_as_those_of_the_tests():
    words = words_of("vllm serve", r"\}\}'")
    words = words[words.index("--dtype"):]
    at = words.index("--kv-transfer-config")
    said = json.loads(words[at + 1])
    assert list(said.pop("kv_connector_extra_config")) == ["run_dir"]
    assert said == TRANSFER
    of_tests = flags()
    for name, value in zip(words[:at], words[1:at + 1]):
        if name.startswith("--"):
            place = of_tests.index(name)
            assert value.startswith("--") or of_tests[place + 1] == value, name
    assert f"--block-size {ENGINE['block_size']}" in COMMANDS


def test_the_variables_are_those_of_the_tests():
    said = dict(re.findall(r"\b([A-Z_]+)=(\w+)", re.search("export HF_HUB_OFFLINE.*", COMMANDS).group()))
    assert said.items() <= variables().items() and "VLLM_CPU_OMP_THREADS_BIND" in said
    assert "PYTHONDONTWRITEBYTECODE" not in variables() and "unset PYTHONDONTWRITEBYTECODE" in COMMANDS


def test_sidecars_and_the_router_are_started_as_those_of_the_tests():
    for command, tests in (("build/release/bin/gantry-sidecar", "end_to_end/conftest.py"), ("vllm-router", "vllm/test_router.py")):
        source = (ROOT / "tests" / tests).read_text()
        said = [word for word in words_of(command) if word.startswith("--")]
        assert said and all(f'"{flag}"' in source for flag in said), (command, said)


def test_what_is_said_to_be_in_the_log_is_in_the_code():
    code = "".join(path.read_text() for folder in ("connectors/vllm/gantry_vllm", "client/python/gantry") for path in (ROOT / folder).glob("*.py"))
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # texts of two lines
    found = re.findall(r"`([^`]+)`", "".join(re.findall(r"(?m)^\| (`.*?) \|", GUIDE.partition("| in the log |")[2])))
    assert len(found) > 6
    for line in [*found, *re.findall("logs `([^`]+)`", GUIDE)]:
        for part in re.split(r" \.\.\. |\bblock_size\b|\d+|: ", line):
            assert part.strip() in code, (line, part)
