"""One process with a transfer channel and L1 memory of LMCache, used as its P2P controller and adapter do. programs.py has the other end."""

import importlib
import time

import gantry_lmcache.adapter as adapter
import torch
import zmq
from command_loop import serve
from lmcache.v1.distributed import transfer_channel
from lmcache.v1.distributed.config import L1MemoryManagerConfig
from lmcache.v1.distributed.memory_manager import L1MemoryManager


class ChannelCommands:
    """Each public method is a command."""

    def __init__(self):
        self.memory = self.context = self.tensor = self.adapter = None
        self.clients = {}

    def open(self, url, settings, size, shm_name="", engine="gantry", **more):
        """`engine`: of --p2p-transfer-engine; `more`: what LMCache hands to that channel's factory."""
        self.memory = L1MemoryManager(L1MemoryManagerConfig(size_in_bytes=size, use_lazy=False, shm_name=shm_name))
        self.tensor = self.memory._allocator.buffer
        if engine == "gantry":
            self.adapter = adapter.GantryChannel(settings, self.memory.get_l1_memory_desc())
        self.context = transfer_channel.initialize_transfer_channel_context(
            engine, self.memory.get_l1_memory_desc(), listen_url=url, advertise_url=url, **more)

    def close(self):
        began = time.monotonic()
        transfer_channel.delete_transfer_channel_context()
        self.context = None
        return time.monotonic() - began

    def free(self):
        """Gives the L1 memory back, as a server does at its end."""
        self.tensor = None
        self.memory.close()

    def fill(self, offset, size, value):
        self.tensor[offset:offset + size] = value

    def bytes(self, offset, size):
        return self.tensor[offset:offset + size].numpy().tobytes()

    def shuffle(self, seed):
        """Other bytes at every place."""
        self.tensor[:] = torch.randint(0, 255, self.tensor.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))

    def connect(self, url):
        """Seconds that it took."""
        began = time.monotonic()
        self.clients[url] = self.context.get_transfer_channel_client(url)
        return time.monotonic() - began

    def remove(self, url):
        began = time.monotonic()
        self.context.remove_transfer_channel_client(url)
        return time.monotonic() - began

    def connected(self):
        return self.context.get_num_connected_clients()

    def submit(self, url, local, remote):
        """`local`, `remote`: lists of (offset, size). Returns (task, seconds that the call took)."""
        mine = self.context.get_transfer_channel_address(local)
        theirs = [transfer_channel.TransferChannelAddress(*place) for place in remote]  # another server has said them
        began = time.monotonic()
        task = self.clients[url].submit_read(mine, theirs)
        return task, time.monotonic() - began

    def query(self, url, task):
        """Returns (finished, flags, seconds that the call took)."""
        began = time.monotonic()
        result = self.clients[url].query_read_status(task)
        return result.is_finished(), result.succeeded_mask, time.monotonic() - began

    def read(self, url, local, remote, seconds=20):
        """Returns the flags of the objects, or "under way"."""
        task, _ = self.submit(url, local, remote)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            finished, flags, _ = self.query(url, task)
            if finished:
                return flags
            time.sleep(0.002)
        return "under way"

    def call(self, module, function, *arguments):
        """A function of a module of the connector. Its result is a dictionary where it is an object."""
        found = getattr(importlib.import_module(f"gantry_lmcache.{module}"), function)(*arguments)
        return dict(vars(found)) if hasattr(found, "__dict__") else found

    def inode(self):
        """The inode of the file that the L1 memory shows."""
        return adapter.mapping_at(self.memory.get_l1_memory_desc().ptr).inode

    def write_all_the_time(self, seconds):
        """Counts in the L1 memory as LMCache's threads write it. Returns (writes, those that the next look did not find)."""
        word = self.tensor[:8].numpy().view("int64")
        end, count, lost = time.monotonic() + seconds, 0, 0
        while time.monotonic() < end:
            lost += int(word[0]) != count and count > 0
            count += 1
            word[0] = count
        return count, lost

    def use_other_adapter_first(self):
        """As a `--l2-adapter` before ours does."""
        self.other = type("OtherAdapter", (adapter.GantryChannel,), {"__init__": lambda self: None})()

    def forget_other_adapter(self):
        self.other = None

    def status(self):
        return self.adapter.report_status()

    def drop_lease(self):
        """As an operator's DELETE /v1/workloads does."""
        self.adapter.session.current.client.close()

    def replace(self, url):
        """The client is removed and made anew at once, as LMCache does when another port of the server has changed."""
        self.context.remove_transfer_channel_client(url)
        self.clients[url] = self.context.get_transfer_channel_client(url)

    def needed_peers(self):
        """(URLs of servers whose peers are kept, peers that no client needs)"""
        return sorted(self.context._peers._claims), sorted(self.context._peers._left)

    def set_peer(self, name, address):
        """As another program of the pod does."""
        return self.adapter.session.current.client.set_peer(name, address)["state"]

    def ask_in_parts(self, url, parts, seconds=3):
        """The answer to one message of several frames; None: there is none."""
        socket = zmq.Context.instance().socket(zmq.REQ)
        socket.setsockopt(zmq.LINGER, 0)
        try:
            socket.connect(f"tcp://{url}")
            socket.send_multipart(parts)
            return socket.recv() if socket.poll(int(seconds * 1000)) else None
        finally:
            socket.close()

    def ask(self, url, question, seconds=3):
        """The server's answer to these bytes; None: there is none."""
        return self.ask_in_parts(url, [question], seconds)

    def kept_tasks(self, url):
        return len(self.clients[url]._reads)


if __name__ == "__main__":
    serve(ChannelCommands())
