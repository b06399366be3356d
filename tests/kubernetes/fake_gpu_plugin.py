"""A node with GPUs of the fake driver: a device plugin that gives them out by UUID, and the CDI spec that a vendor's tools would write.

  fake_gpu_plugin.py COUNT DRIVER FOLDER    runs beside the kubelet; DRIVER: the fake libcuda.so.1, FOLDER: the GPUs' memory

What a container gets of a GPU is its device file: the fake driver sees no others. A MARKER variable tells the tests the rest.
"""

import json
import os
import sys
import time
from concurrent import futures
from pathlib import Path

import grpc

RESOURCE = "nvidia.com/gpu"
KUBELET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
ENDPOINT = "fake-gpu.sock"
SPEC = Path("/etc/cdi/nvidia.json")
DRIVER_IN_CONTAINER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
MEMORY_IN_CONTAINER = "/run/fake-gpus"


def uuid_of(number):
    """As the fake driver makes them."""
    return f"GPU-fafafafa-fafa-fafa-fafa-fafafafafa{number:02x}"


def cdi_spec(count, driver, folder):
    def device(number):
        node = {"path": f"/dev/nvidia{number}", "hostPath": "/dev/null", "permissions": "rw"}
        return {"name": uuid_of(number), "containerEdits": {"deviceNodes": [node], "env": [f"MARKER_OF_GPU_{number}={uuid_of(number)}"]}}
    def mount(host, container, *options):
        return {"hostPath": str(host), "containerPath": container, "options": ["bind", "nosuid", "nodev", *options]}
    return {"cdiVersion": "0.5.0", "kind": RESOURCE, "devices": [device(number) for number in range(count)],
            "containerEdits": {"env": [f"GANTRY_FAKE_GPUS={count}", f"GANTRY_FAKE_GPU_DIR={MEMORY_IN_CONTAINER}", "GANTRY_FAKE_GPU_DEV=/dev"],
                               "mounts": [mount(driver, DRIVER_IN_CONTAINER, "ro"), mount(folder, MEMORY_IN_CONTAINER, "rw")]}}


# The few messages, in the wire format of protocol buffers.

def field(number, value):
    """A string, or a message that is bytes already."""
    data = value.encode() if isinstance(value, str) else value
    length, size = bytearray(), len(data)
    while True:
        length.append(size & 0x7F | (0x80 if size > 0x7F else 0))
        size >>= 7
        if not size:
            break
    return bytes([number << 3 | 2]) + bytes(length) + data


def fields(message):
    """(number, bytes) of a message that has strings and messages only."""
    position = 0
    while position < len(message):
        number, size, shift = message[position] >> 3, 0, 0
        position += 1
        while True:
            byte = message[position]
            position += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield number, message[position:position + size]
        position += size


class Plugin(grpc.GenericRpcHandler):
    def __init__(self, count):
        self.devices = b"".join(field(1, field(1, uuid_of(number)) + field(2, "Healthy")) for number in range(count))

    def service(self, details):
        method = details.method.rsplit("/", 1)[1]
        if method == "ListAndWatch":
            return grpc.unary_stream_rpc_method_handler(self.list_and_watch)
        if method == "Allocate":
            return grpc.unary_unary_rpc_method_handler(self.allocate)
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"") if method == "GetDevicePluginOptions" else None

    def list_and_watch(self, _, context):
        yield self.devices
        while context.is_active():
            time.sleep(0.2)

    def allocate(self, request, _):
        def answer(container):
            return b"".join(field(5, field(1, f"{RESOURCE}={uuid.decode()}")) for number, uuid in fields(container) if number == 1)
        return b"".join(field(1, answer(container)) for number, container in fields(request) if number == 1)


def serve(plugin):
    """Until there is another kubelet."""
    socket = KUBELET.parent / ENDPOINT
    socket.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[plugin])
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    kubelet = os.stat(KUBELET).st_ino
    try:
        with grpc.insecure_channel(f"unix:{KUBELET}", options=[("grpc.default_authority", "localhost")]) as channel:
            register = channel.unary_unary("/v1beta1.Registration/Register")
            register(field(1, "v1beta1") + field(2, ENDPOINT) + field(3, RESOURCE), timeout=15)
        print("registered", flush=True)
        while os.stat(KUBELET).st_ino == kubelet and socket.exists():
            time.sleep(0.2)
    except (OSError, grpc.RpcError) as error:
        print(error, flush=True)
    server.stop(0).wait()


def main(count, driver, folder):
    SPEC.parent.mkdir(parents=True, exist_ok=True)
    SPEC.write_text(json.dumps(cdi_spec(int(count), driver, folder), indent=1))
    while True:
        if KUBELET.exists():
            serve(Plugin(int(count)))
        time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
