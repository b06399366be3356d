"""A device plugin that gives out GPUs of a fake driver as their vendor's gives out real ones.

  fake_gpu_plugin.py VENDOR DRIVER FOLDER    runs beside the kubelet; DRIVER: the fake library, FOLDER: the GPUs' memory
"""

import os
import sys
import time
from concurrent import futures
from pathlib import Path

import grpc

from node_gpus import COUNT, VENDORS, field

KUBELET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")


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
    def __init__(self, vendor):
        self.vendor = vendor
        self.devices = b"".join(field(1, field(1, vendor.gpu_id(number)) + field(2, "Healthy")) for number in range(COUNT))

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
            return self.vendor.answer([gpu_id.decode() for number, gpu_id in fields(container) if number == 1])
        return b"".join(field(1, answer(container)) for number, container in fields(request) if number == 1)


def serve(vendor, endpoint):
    """Until there is another kubelet."""
    socket = KUBELET.parent / endpoint
    socket.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[Plugin(vendor)])
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    kubelet = os.stat(KUBELET).st_ino
    try:
        with grpc.insecure_channel(f"unix:{KUBELET}", options=[("grpc.default_authority", "localhost")]) as channel:
            register = channel.unary_unary("/v1beta1.Registration/Register")
            register(field(1, "v1beta1") + field(2, endpoint) + field(3, vendor.resource), timeout=15)
        print("registered", flush=True)
        while os.stat(KUBELET).st_ino == kubelet and socket.exists():
            time.sleep(0.2)
    except (OSError, grpc.RpcError) as error:
        print(error, flush=True)
    server.stop(0).wait()


def main(name, driver, folder):
    vendor = VENDORS[name]
    vendor.put_on_node(Path(folder), driver)
    while True:
        if KUBELET.exists():
            serve(vendor, f"fake-gpus-of-{name}.sock")
        time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
