"""cert-manager for the node, as an operator has it: its own programs, each in an image that holds nothing else, and its own chart."""

import json
import subprocess
from pathlib import Path

import node_images

NAME = "cert-manager"  # of the release and of its namespace
PROGRAMS = ("controller", "webhook", "cainjector")
USER = "65532:65532"


def folder():
    """Of its programs and its chart; built the first time."""
    return Path(subprocess.run([node_images.ROOT / "tools" / "certmanager-path"], check=True, capture_output=True, text=True).stdout.strip())


def load_images(node):
    for program in PROGRAMS:
        archive = node.folder / "images" / f"{NAME}-{program}.tar"
        node.load(node_images.write_image(archive, _image(program), {f"/{program}": folder() / program}, Entrypoint=[f"/{program}"], User=USER))


def _image(program):
    return f"localhost/{NAME}-{program}:test"


def _values():
    def image(program):
        return {"repository": _image(program).rpartition(":")[0], "tag": "test", "pullPolicy": "Never"}
    return {"installCRDs": True, "image": image("controller"), "startupapicheck": {"enabled": False},  # a program that is not built
            "webhook": {"image": image("webhook"), "readinessProbe": {"initialDelaySeconds": 0, "periodSeconds": 1}},
            "cainjector": {"image": image("cainjector")}, "global": {"leaderElection": {"namespace": NAME}}}


def helm_arguments():
    return ["upgrade", "--install", NAME, str(folder() / "chart"), "--namespace", NAME, "--create-namespace", "--wait", "--timeout", "120s",
            *(f"--set-json={key}={json.dumps(value)}" for key, value in _values().items())]
