"""Clients that connect to a listener and then waste what they hold: silent, slow, half-closed, or after one word."""

import errno
import resource
import select
import socket
import threading
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # with empty SETTINGS
REQUEST = b"GET /v1/info HTTP/1.1\r\nHost: x\r\n\r\n"
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
PING = b'{"type":"ping"}'
HELLO = b"\x01\x00\x00\x00" * 16  # of no frame

KINDS = ("silent", "slow", "half_closed", "spoke")


def allow_descriptors(count):
    """As many for this process: the crowd's own ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        count = min(count, hard)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


class Crowd:
    """`count` connections of one kind to one address: (host, port), or a path. Closed by close()."""

    def __init__(self, address, kind, word, count, seqpacket=False):
        self.kind, self.word = kind, word
        self.sockets, self.turned_away = [], 0
        self._stop = threading.Event()
        self._talker = None
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        for _ in range(count):
            self._connect(family, socket.SOCK_SEQPACKET if seqpacket else socket.SOCK_STREAM, address)
        if kind == "slow":
            self._talker = threading.Thread(target=self._talk, daemon=True)
            self._talker.start()

    def _connect(self, family, kind, address):
        each = socket.socket(family, kind)
        each.settimeout(2)
        try:
            each.connect(address)
            if self.kind == "spoke":
                each.sendall(self.word)
            elif self.kind == "slow":
                each.sendall(self.word[:3])
            elif self.kind == "half_closed":
                each.sendall(self.word[:-1])
                each.shutdown(socket.SHUT_WR)
        except OSError as failure:  # it was turned away, or waits in a backlog that is full
            self.turned_away += 1
            if failure.errno not in (errno.EPIPE, errno.ECONNRESET, errno.EAGAIN, errno.ENOTCONN) and not isinstance(
                    failure, (TimeoutError, BlockingIOError)):
                raise
        each.setblocking(False)
        self.sockets.append(each)

    def _talk(self):
        """A byte of each now and then, of one long first line."""
        while not self._stop.wait(0.5):
            for each in self.sockets:
                try:
                    each.send(b"x")
                except OSError:
                    pass

    def still_open(self):
        """How many the other side has not ended."""
        poller = select.poll()
        for each in self.sockets:
            poller.register(each, select.POLLRDHUP)
        time.sleep(0.05)
        ended = {fd for fd, events in poller.poll(0) if events & (select.POLLHUP | select.POLLRDHUP | select.POLLERR)}
        return len(self.sockets) - len(ended)

    def close(self):
        self._stop.set()
        if self._talker:
            self._talker.join()
        for each in self.sockets:
            each.close()
