"""docs/getting_started_lmcache.md works as it is pasted, and names lines of the log that the code writes."""

import os
import re
import signal
import subprocess

from programs import BIN_DIR, LIB_DIR, ROOT

GUIDE = (ROOT / "docs" / "getting_started_lmcache.md").read_text()
PASTED = "\n".join(re.findall(r"```sh\n(.*?)```", GUIDE, re.S))
SECONDS = 110


def test_the_guide_is_pasted(folder):
    """Only its first command is left out, and its folders are others."""
    assert PASTED.startswith("make build ") and "/tmp/lm/" in PASTED
    script = PASTED.partition("\n")[2].replace("/tmp/lm/", f"{folder}/lm/").replace("build/release/bin", str(BIN_DIR))
    script = script.replace("$PWD/build/release/lib", str(LIB_DIR))
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    bash = subprocess.Popen(["bash", "-c", f"{script}\nkill $(jobs -p)\nwait"], cwd=ROOT, env=variables, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        said = bash.communicate(timeout=SECONDS)[0]
    finally:
        try:
            os.killpg(bash.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    assert "\nTrue\n(10, 10)\n" in said, said[-4000:]
    assert 'gantry_transfer_bytes_total{op="read",path="shm"} 163840\n' in said


def test_lines_of_the_log_are_in_the_code():
    code = "".join(path.read_text() for folder in ("connectors/lmcache/gantry_lmcache", "client/python/gantry", "client/memory")
                   for path in (ROOT / folder).iterdir() if path.suffix in (".py", ".cc"))
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # texts of two lines
    found = [line for row in re.findall(r"(?m)^\| (`.*?) \|", GUIDE.partition("| in the log |")[2]) for line in re.findall(r"`([^`]+)`", row)]
    assert len(found) > 6
    ours = [line for line in [*found, *re.findall("logs `([^`]+)`", GUIDE)] if "Unsupported transfer_channel_type" not in line]
    for line in ours:
        for part in re.split(r" \.\.\. |\d+| at the start", line):
            assert part.strip() in code, (line, part)
