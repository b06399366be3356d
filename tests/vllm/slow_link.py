"""TCP forwarders on the loopback that let so many bytes of a connection pass, and the rest when they are opened."""

import socket
import threading

_PIECE = 65536


class SlowLink:
    """127.0.0.2 stands for 127.0.0.1 at these ports, as a sidecar finds its peer's data port at the host of its address.

    A connection stands still once it has brought `passing` bytes from there; closing ends all connections. The
    sidecars' calls bring little and go on, so that they are alive for each other; a connection of data stands still.
    `pushed`: what is sent to there is slow, and not what comes from there.
    """

    host = "127.0.0.2"

    def __init__(self, ports, passing, pushed=False):
        self._passing, self._pushed = passing, pushed
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
                threading.Thread(target=self._forward, args=(source, sink, slow), daemon=True).start()

    def _forward(self, source, sink, slow):
        passed = 0
        try:
            while data := source.recv(_PIECE):
                passed += len(data)
                if slow and passed > self._passing and not self._open.is_set():
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
