#!/usr/bin/env python3
"""Stands in for an inference engine on Kubernetes, so that transfers are seen without a GPU, a model and requests.

  stand_in_engine.py prefill        offers a KV cache in memory of the host
  stand_in_engine.py decode URL     reads blocks of it again and again; GET URL/peer answers where a prefill engine's sidecar is

Both answer at PORT (8000): /health, and /peer with the name and the address of the sidecar of their own pod. A decode engine
whose reads fail asks again who there is, and goes on with that one: a prefill pod may end and another one come.
"""

import argparse
import http.server
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import urllib.request

import gantry

RUN_DIR = os.environ.get("GANTRY_RUN_DIR", "/run/gantry")
PORT = int(os.environ.get("PORT", "8000"))
PEER_PORT = 9461
LAYOUT = gantry.Layout(block_bytes=32 * 1024)
BLOCKS = 1024
BLOCKS_OF_A_READ = 64


def say(what, **fields):
    print(json.dumps({"event": what, **fields}), flush=True)


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = socket.gethostname()  # the pod's, which its sidecar has too
        found = {"/health": {}, "/peer": {"name": name, "address": f"{socket.gethostbyname(name)}:{PEER_PORT}"}}.get(self.path)
        self.send_response(200 if found is not None else 404)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_):
        """Probes are no news."""


def prefill(client, _):
    arena = client.arena(BLOCKS * LAYOUT.block_bytes, name="kv-cache")
    offered = client.register("kv", arena, access=["remote_read"], layout=LAYOUT)  # dropped, it would be unregistered
    say("ready", blocks=BLOCKS, buffer=offered.name)
    while True:
        client.check()  # ends the process when the sidecar is another one: memory has to be registered again
        time.sleep(1)


class Source:
    """The prefill engine that is read from."""

    def __init__(self, client, url):
        self.client, self.url, self.name = client, url, None

    def find(self):
        """Asks who there is; without an answer it stays the one that was."""
        try:
            with urllib.request.urlopen(f"{self.url}/peer", timeout=2) as answer:
                peer = json.load(answer)
        except OSError:
            return
        if peer["name"] == self.name:
            return
        if self.name:
            self.client.delete_peer(self.name)
        self.name = peer["name"]
        self.client.set_peer(peer["name"], peer["address"])
        say("reading from", peer=peer["name"])


def decode(client, arguments):
    arena = client.arena(BLOCKS * LAYOUT.block_bytes, name="kv-cache")
    mine = client.register("kv", arena, access=[], layout=LAYOUT)
    source, failed, told = Source(client, arguments.url), True, None
    say("ready", blocks=BLOCKS)
    while True:
        client.check()
        try:
            if failed:
                source.find()
            if source.name:
                local, remote = (random.sample(range(BLOCKS), BLOCKS_OF_A_READ) for _ in range(2))
                client.read([mine], [f"{source.name}/{arguments.workload}/kv"], local_blocks=local, remote_blocks=remote).wait(5)
            failed, told = source.name is None, None
        except gantry.Error as error:
            failed = True
            if error.code != told:
                say("read failed", peer=source.name, code=error.code, error=str(error))
            told = error.code
        time.sleep(arguments.interval)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", choices=["prefill", "decode"])
    parser.add_argument("url", nargs="?", help="where a prefill engine answers, for example http://chat-prefill:8000")
    parser.add_argument("--workload", default="engine", help="name of the engines at their sidecars")
    parser.add_argument("--interval", type=float, default=0.1, help="seconds between two reads")
    arguments = parser.parse_args()
    if arguments.role == "decode" and not arguments.url:
        parser.error("decode needs URL")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server = http.server.ThreadingHTTPServer(("", PORT), Answers)
    server.handle_error = lambda *_: None  # a probe that went away
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with gantry.Client(RUN_DIR, arguments.workload) as client:
            (prefill if arguments.role == "prefill" else decode)(client, arguments)
    except gantry.Error as error:
        say("ended", code=error.code, error=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
