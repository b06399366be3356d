"""TCP forwarders on the loopback that let so many bytes of a connection pass, and the rest when they are opened."""

import re
import socket
import threading
from collections import Counter

PASSING = 256 << 10  # of the 3 MiB of a read
_PIECE = 65536


class SlowLink:
    """127.0.0.2 stands for 127.0.0.1 at these ports, as a sidecar finds its peer's data port at the host of its address.

    A connection stands still once it has brought `passing` bytes from there; closing ends all connections. The
    sidecars' calls bring little and go on, so that they are alive for each other; a connection of data stands still.
    `pushed`: what is sent to there is slow, and not what comes from there. `together`: all connections of a port bring so many
    bytes, as a read takes several connections.
    """

    host = "127.0.0.2"

    def __init__(self, ports, passing, pushed=False, together=False):
        self._passing, self._pushed, self._together = passing, pushed, together
        self._passed, self._lock = Counter(), threading.Lock()  # by port, or by connection
        self._open, self.standing = threading.Event(), threading.Event()
        self._sockets = []
        for port in ports:
            listener = socket.create_server((self.host, port))
            self._sockets.append(listener)
            threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    def open(self):
        self._open.set()

    def close(self):
        self._open.set()
        for each in self._sockets:
            _shut(each)

    def _accept(self, listener, port):
        while True:
            try:
                caller = listener.accept()[0]
                self._sockets.append(caller)
                server = socket.create_connection(("127.0.0.1", port))
            except ConnectionRefusedError:
                _shut(caller)  # the sidecar is gone
                continue
            except OSError:
                return
            self._sockets.append(server)
            for source, sink, slow in ((caller, server, self._pushed), (server, caller, not self._pushed)):
                threading.Thread(target=self._forward, args=(source, sink, slow, port if self._together else source), daemon=True).start()

    def _has_brought(self, counted, length):
        with self._lock:
            self._passed[counted] += length
            return self._passed[counted]

    def _forward(self, source, sink, slow, counted):
        try:
            while data := source.recv(_PIECE):
                if slow and self._has_brought(counted, len(data)) > self._passing and not self._open.is_set():
                    self.standing.set()
                    self._open.wait()
                sink.sendall(data)
        except OSError:
            pass
        _shut(source)
        _shut(sink)


def _shut(each):
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    each.close()


def ports_of(sidecar):
    """Returns the ports of its peer API and of its data connections."""
    return [int(re.findall(rf'"{what}","address":"127\.0\.0\.1:(\d+)"', sidecar.log)[-1])
            for what in ("the peer API listens on TCP", "data connections are taken")]


class SlowReads:
    """Reads of a pair's decoder go over TCP, and stand still in the middle, from now on until close()."""

    def __init__(self, pair):
        self._pair = pair
        ports = ports_of(pair.prefill_sidecar)
        self._address = f"{SlowLink.host}:{ports[0]}"
        self._link = SlowLink(ports, PASSING, together=True)
        self._forget()

    def change(self, params):
        """Changes the parameters as a router does."""
        params["gantry"]["workers"] = [worker | {"address": self._address, "node_id": "elsewhere"} for worker in params["gantry"]["workers"]]
        return params

    def is_under_way(self):
        return self._link.standing.is_set()

    def go_on(self):
        self._link.open()

    def close(self):
        self._link.close()
        self._forget()

    def _forget(self):
        """A peer that is up stays where it is."""
        self._pair.decode_sidecar.ask("DELETE", f"/v1/peers/{self._pair.prefill_sidecar.name}")
