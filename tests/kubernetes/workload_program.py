"""What runs in a workload's container: an engine that does over XML-RPC what a test tells it, through the sidecar of its pod.

It waits for nothing: the sidecar was there before it. SIGTERM ends it after DRAIN_SECONDS (0), as an engine that finishes its work.
"""

import hashlib
import http.client
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import xmlrpc.server

import gantry
import gpu_driver

PORT = 8000
RUN_DIR = os.environ.get("GANTRY_RUN_DIR", "/run/gantry")
GPU_LIBRARY = os.environ.get("GPU_LIBRARY", "libcuda.so.1")
BOTH = ("remote_read", "remote_write")


class Engine:
    def __init__(self):
        self.open()
        self.driver = None
        self.load = None

    # Memory; contents are told by a seed, as a test cannot send megabytes to check some.

    def open(self):
        """Again, after the sidecar was another: what was registered is gone with the one before."""
        self.client = gantry.Client(RUN_DIR, socket.gethostname())
        self.arenas, self.tensors, self.buffers, self.sizes = {}, {}, {}, {}

    def allocate(self, name, size, seed):
        self.arenas[name], self.sizes[name] = self.client.arena(size), size
        self.arenas[name].view(0, size)[:] = random.Random(seed).randbytes(size)
        self.buffers[name] = self.client.register(name, self.arenas[name].view(0, size), access=BOTH)

    def allocate_on_gpu(self, name, size, seed):
        self.driver = self.driver or gpu_driver.Driver(0, GPU_LIBRARY)
        address = self.driver.allocate(size)
        self.driver.write(address, random.Random(seed).randbytes(size))
        self.tensors[name] = gpu_driver.Tensor(address, size)
        self.buffers[name] = self.client.register(name, self.tensors[name], access=BOTH)
        return self.driver.uuid()

    def refill(self, name, seed):
        if tensor := self.tensors.get(name):
            self.driver.write(tensor.address, random.Random(seed).randbytes(tensor.nbytes))
        else:
            self.arenas[name].view(0, self.sizes[name])[:] = random.Random(seed).randbytes(self.sizes[name])

    def digest(self, name):
        if tensor := self.tensors.get(name):
            data = self.driver.read(tensor.address, tensor.nbytes)
        else:
            data = bytes(self.arenas[name].view(0, self.sizes[name]))
        return hashlib.sha256(data).hexdigest()

    # The sidecar, as a client over REST sees it.

    def rest(self, method, target, body=None):
        """[status, object or text]"""
        connection = http.client.HTTPConnection("localhost", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.sock.settimeout(30)
            connection.sock.connect(os.path.join(RUN_DIR, "api.sock"))
            headers = {"Content-Type": "application/json"} if body else {}
            connection.request(method, target, body and json.dumps(body), headers)
            answer = connection.getresponse()
            return [answer.status, answer.read().decode()]
        finally:
            connection.close()

    # Transfers one after the other, until told to stop: what a test looks at while something else happens.

    def start_load(self, operation, local, remote, size):
        self.load = {"succeeded": 0, "failed": {}, "longest_gap": 0.0, "stop": False}
        threading.Thread(target=self._move, args=(self.load, operation, local, remote, size), daemon=True).start()

    def _move(self, load, operation, local, remote, size):
        submit, last = getattr(self.client, operation), time.monotonic()
        while not load["stop"]:
            try:
                submit(self.buffers[local], remote, ranges=[gantry.Range(0, 0, 0, 0, size)]).wait(10)
                load["succeeded"] += 1
                now = time.monotonic()
                load["longest_gap"], last = max(load["longest_gap"], now - last), now
            except gantry.Error as error:
                load["failed"][error.code] = load["failed"].get(error.code, 0) + 1
                time.sleep(0.05)

    def look_at_load(self):
        return {key: value for key, value in self.load.items() if key != "stop"}

    def stop_load(self):
        self.load["stop"] = True
        return self.look_at_load()

    def end(self):
        """As a job's work that is done."""
        threading.Timer(0.2, os._exit, [0]).start()


class Requests(xmlrpc.server.SimpleXMLRPCRequestHandler):
    def do_GET(self):
        """Whatever is asked for: it is well."""
        self.send_response(200)
        self.end_headers()


def main():
    drain = float(os.environ.get("DRAIN_SECONDS", "0"))

    def end(*_):
        print(f"SIGTERM, ending in {drain} s", flush=True)
        threading.Thread(target=lambda: (time.sleep(drain), os._exit(0)), daemon=True).start()

    signal.signal(signal.SIGTERM, end)
    # One thread: a context of the driver belongs to one.
    server = xmlrpc.server.SimpleXMLRPCServer(("0.0.0.0", PORT), Requests, allow_none=True, logRequests=False)
    server.register_instance(Engine())
    print("started", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
