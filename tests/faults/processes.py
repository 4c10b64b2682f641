"""Real processes of the project under test, and a Redis that can be asked what is in it."""

import contextlib
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from redis import Redis

from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
CRASHED = -signal.SIGKILL


class Process:
    """`python -m django COMMAND` in a session of its own, its output in a file."""

    def __init__(self, command: list[str], *, log: Path, environment: dict[str, str]) -> None:
        self._log = log
        self._stopped = False
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "django", *command],
                cwd=ROOT,
                env=os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONUNBUFFERED": "1"} | environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def send(self, number: int) -> None:
        self._popen.send_signal(number)

    def say(self, line: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{line}\n".encode())
        self._popen.stdin.flush()

    def freeze(self) -> None:
        """SIGSTOP, and wait until the kernel has stopped it."""
        self.send(signal.SIGSTOP)
        # The state follows the name, which ends with the last parenthesis.
        stat = Path(f"/proc/{self.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", f"{self.pid} does not stop")

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def ended(self, *, seconds: float = 40) -> int:
        """Wait for its end; its exit status, negative for a signal."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.pid} still runs after {seconds} s:\n{self.log}") from None

    def end(self) -> None:
        """Make an end of it, whatever it does: politely, so that coverage is saved, then by force."""
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(10)
        # Its session: the horse of a forking worker outlives it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(10)
        if self._popen.stdin:
            self._popen.stdin.close()


class Processes:
    """Starts processes and ends all of them."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._all: list[Process] = []

    def start(self, *command: str, **environment: str) -> Process:
        log = self._folder / f"{len(self._all) + 1}-{command[0]}.log"
        process = Process(list(command), log=log, environment=self._environment | environment)
        self._all.append(process)
        return process

    def worker(self, *options: str, queue: str = "turnkit", **environment: str) -> Process:
        """An ordinary worker, as a project would start it."""
        return self.start("rqworker", queue, *options, **environment)

    def run(self, *command: str, **environment: str) -> str:
        """Run a command to its end; its output."""
        process = self.start(*command, **environment)
        status = process.ended()
        assert status == 0, process.log
        return process.log

    @property
    def logs(self) -> str:
        return "\n".join(process.log for process in self._all)

    def end(self) -> None:
        for process in self._all:
            process.end()


@contextlib.contextmanager
def running(folder: Path, **environment: str) -> Iterator[Processes]:
    processes = Processes(folder, environment)
    try:
        yield processes
    finally:
        processes.end()


def redis() -> Redis:
    return Redis.from_url(os.environ["REDIS_URL"])


def queued(queue: str = "turnkit") -> list[str]:
    """The ids of the jobs that wait."""
    return [job.decode() for job in redis().lrange(f"rq:queue:{queue}", 0, -1)]


def failed_jobs(queue: str = "turnkit") -> list[str]:
    return [job.decode() for job in redis().zrange(f"rq:failed:{queue}", 0, -1)]


def all_bytes() -> bytes:
    """Everything Redis holds, compressed values opened."""
    found = []
    client = redis()
    for key in client.scan_iter():
        values = _values(client, key)
        found += [key, *values, *(opened for value in values if (opened := _opened(value)))]
    return b"\n".join(found)


def _values(client: Redis, key: bytes) -> list[bytes]:
    match kind := client.type(key):
        case b"string":
            return [client.get(key) or b""]
        case b"hash":
            return [part for pair in client.hgetall(key).items() for part in pair]
        case b"list":
            return client.lrange(key, 0, -1)
        case b"set":
            return list(client.smembers(key))
        case b"zset":
            return client.zrange(key, 0, -1)
        case b"stream":
            return [repr(client.xrange(key)).encode()]
        case b"none":  # a worker has deleted it since it was listed
            return []
    raise AssertionError(f"{key!r} is a {kind!r}")


def _opened(value: bytes) -> bytes:
    try:
        return zlib.decompress(value)
    except zlib.error:
        return b""
