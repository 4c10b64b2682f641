"""Redis servers that do not serve: one that never answers, and one that refuses every write."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

READONLY = "READONLY You can't write against a read only replica."
OOM = "OOM command not allowed when used memory > 'maxmemory'."
_READS = {b"PING": b"+PONG\r\n", b"HELLO": b"-ERR unknown command 'HELLO'\r\n", b"SELECT": b"+OK\r\n"} | {
    b"CLIENT": b"+OK\r\n",
    b"INFO": b"$20\r\nredis_version:7.2.4\r\n\r\n",
    b"MULTI": b"+OK\r\n",
    b"EXEC": b"-EXECABORT Transaction discarded because of previous errors.\r\n",
}


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, answer: str | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.connections = 0
        self.is_over = threading.Event()


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.server.connections += 1
        if self.server.answer is None:
            self.server.is_over.wait(120)
            return
        while header := self.rfile.readline():
            words = [self._word() for _ in range(int(header[1:]))]
            refusal = f"-{self.server.answer}\r\n".encode()
            self.wfile.write(_READS.get(words[0].upper(), refusal))

    def _word(self) -> bytes:
        size = int(self.rfile.readline()[1:])
        return self.rfile.read(size + 2)[:size]


@contextmanager
def bad_redis(answer: str | None) -> Iterator[tuple[str, _Server]]:
    """The URL of a server that answers every command with that error, or takes connections and never answers."""
    with _Server(answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"redis://127.0.0.1:{server.server_address[1]}/0", server
        finally:
            server.is_over.set()
            server.shutdown()
            thread.join()
