"""One process that stores and looks up as an engine does, through LMCache's own client. programs.py has the other end."""

import pickle
import time

import torch
import zmq
from command_loop import serve
from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey, RegisterEngineDrivenContextPayload
from lmcache.v1.multiprocess.transport.factory import RequestClientFactory

LAYERS, CHUNK, HIDDEN = 2, 16, 256  # of an object of 2 x 2 x 16 x 256 bytes and more: CHUNK is the server's --chunk-size
SECONDS = 20.0


def chunk(seed):
    """The keys and values of one chunk of tokens: [2, layers, tokens, hidden], right at no other place."""
    return torch.randint(0, 255, (2, LAYERS, CHUNK, HIDDEN), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


class EngineCommands:
    """Each public method is a command."""

    def __init__(self):
        self.clients, self.requests = {}, 0

    def connect(self, server, url):
        client = RequestClientFactory.create(url, context=zmq.Context.instance())
        client.register_kv_cache_engine_driven_context(RegisterEngineDrivenContextPayload(
            instance_id=1, model_name="m", world_size=1, block_size=CHUNK, num_layers=LAYERS, hidden_dim_size=HIDDEN, dtype_str="uint8",
            use_mla=False)).result(timeout=SECONDS)
        self.clients[server] = client

    def store(self, server, tokens, seed):
        """Stores the chunks of these tokens, with content that the seed says."""
        key, client = self._key(tokens, 0), self.clients[server]
        client.prepare_store(key, 1).result(timeout=SECONDS)
        data = pickle.dumps([chunk(seed + number) for number in range(len(tokens) // CHUNK)])
        return client.commit_store(key, 1, data).result(timeout=SECONDS)

    def look_up(self, server, tokens, seconds=SECONDS):
        """Returns (request, how many chunks the server has of these tokens, now that it has asked its peers)."""
        key, client = self._key(tokens, None), self.clients[server]
        client.lookup(key, 1).result(timeout=SECONDS)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = client.query_prefetch_status(key.request_id).result(timeout=SECONDS)
            if found is not None:
                return key.request_id, found
            time.sleep(0.002)
        raise TimeoutError(f"the lookup has no result after {seconds} s")

    def retrieve(self, server, tokens, request, seed):
        """Returns how many chunks the server gave, each of which has the content that the seed says, byte by byte."""
        answer = self.clients[server].prepare_retrieve(self._key(tokens, 0, request), 1).result(timeout=SECONDS)
        if not answer.success:
            return 0
        chunks = pickle.loads(answer.data)
        wrong = [number for number, found in enumerate(chunks) if not torch.equal(found, chunk(seed + number))]
        if wrong:
            raise AssertionError(f"chunks {wrong} of {len(chunks)} have other bytes")
        return len(chunks)

    def fetch(self, server, tokens, seed):
        """A lookup and a retrieve of what was found."""
        request, found = self.look_up(server, tokens)
        given = self.retrieve(server, tokens[:found * CHUNK], request, seed) if found else 0
        self.clients[server].end_session(request).result(timeout=SECONDS)
        return found, given

    def clear(self, server):
        """Empties the server's memory."""
        self.clients[server].clear(True).result(timeout=SECONDS)

    def _key(self, tokens, worker, request=None):
        self.requests += 1
        return IPCCacheServerKey(model_name="m", world_size=1, worker_id=worker, token_ids=tuple(tokens), start=0, end=len(tokens),
                                 request_id=request or f"r{self.requests}", num_kv_readers=1)


if __name__ == "__main__":
    serve(EngineCommands())
