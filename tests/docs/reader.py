"""A reader of the tutorial, who does what the page says, block by block, in a folder and an environment of his own."""

import importlib.metadata
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.waiting import wait_until

PASSWORD = "a password for the tutorial"
SECONDS = 60
# What these commands say when they are ready; each stays in a terminal of its own.
LASTING = {
    "python servers.py": "export REDIS_URL=",
    "python -m turnkit_django.testing.model_server": "listening on",
    "python manage.py rqworker": "istening on",
    "python manage.py runserver": "Quit the server with",
}
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CAPTION = re.compile(r":caption: (\S+)( \(append\))?\n\n")
_ADMIN_SCRIPT = "#!{python}\nfrom django.core.management import execute_from_command_line as run\nrun()\n"


class File(NamedTuple):
    path: str
    is_appended: bool
    text: str


class Command(NamedTuple):
    line: str
    says: tuple[str, ...]


def steps(page: str) -> Iterator[File | Command]:
    """The files and the commands of a page, in its order; blocks of other kinds are only shown."""
    for info, body in _FENCE.findall(page):
        if info.startswith("{code-block}"):
            caption = _CAPTION.match(body)
            assert caption, body
            yield File(caption[1], bool(caption[2]), body[caption.end() :])
        elif info == "console":
            for line, *says in (part.splitlines() for part in body.split("$ ")[1:]):
                yield Command(line, tuple(says))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Terminal:
    """A command that goes on."""

    line: str
    process: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> None:
        """SIGTERM to the command and its children (`runserver` has one); SIGKILL if it does not follow."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                os.killpg(self.process.pid, number)
            try:
                self.process.wait(timeout=15)
                return
            except subprocess.TimeoutExpired:
                continue


@dataclass
class Reader:
    folder: Path
    wheel: Path
    ports: dict[str, str] = field(default_factory=lambda: {name: str(free_port()) for name in ("8000", "9000")})
    terminals: list[Terminal] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Nothing is inherited: no settings, servers or keys of whoever runs the tests.
        path = os.pathsep.join([str(self.folder / ".venv/bin"), "/usr/bin", "/bin"])
        self.environment = {"PATH": path, "HOME": str(self.folder), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}

    @property
    def site(self) -> str:
        return f"http://127.0.0.1:{self.ports['8000']}"

    def follow(self, page: str) -> None:
        for step in steps(page):
            if isinstance(step, File):
                self._write(step)
            else:
                self._do(step)

    def _write(self, file: File) -> None:
        path = self.folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if file.is_appended else "w") as opened:
            opened.write(file.text)

    def _do(self, command: Command) -> None:
        line = command.line
        for told, free in self.ports.items():
            line = re.sub(rf"\b{told}\b", free, line)
        match shlex.split(line):
            case ["python", "-m", "venv", ".venv"]:
                self._make_environment()
            case ["source", ".venv/bin/activate"]:
                assert (self.folder / ".venv/bin/activate").exists()
            case ["pip", "install", *names]:
                self._install(names)
            case ["export", assignment]:
                name, _, value = assignment.partition("=")
                self.environment.setdefault(name, value)  # the tip's servers come first
            case _ if ready := next((words for start, words in LASTING.items() if line.startswith(start)), ""):
                self.start(line, ready)
            case _:
                said = self._run(line)
                for expected in command.says:
                    assert expected in said, said

    def _make_environment(self) -> None:
        """A fresh environment that also sees the packages of the test environment, though not its editable installs."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder / ".venv"], check=True)
        python = self.folder / ".venv/bin/python"
        [own] = (self.folder / ".venv/lib").glob("python*/site-packages")
        (own / "packages-of-the-tests.pth").write_text(sysconfig.get_path("purelib"))
        script = python.with_name("django-admin")
        script.write_text(_ADMIN_SCRIPT.format(python=python))
        script.chmod(0o755)

    def _install(self, names: list[str]) -> None:
        for name in names:
            if name == "turnkit-django":
                options = "--quiet --no-index --no-deps --ignore-installed"
                self._run(f"python -m pip install {options} {shlex.quote(str(self.wheel))}")
            else:
                assert importlib.metadata.version(name)

    def _run(self, line: str) -> str:
        variables = self.environment
        if "createsuperuser" in line:  # which would ask for a password
            line += " --noinput"
            variables = variables | {"DJANGO_SUPERUSER_PASSWORD": PASSWORD}
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}"
        return done.stdout

    def start(self, line: str, ready: str) -> Terminal:
        log = self.folder / f"terminal-{len(self.terminals)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        terminal = Terminal(line, process, log)
        self.terminals.append(terminal)
        wait_until(lambda: ready in terminal.text(), terminal.text, seconds=SECONDS)
        if "servers.py" in line:
            for copied in terminal.text().splitlines():
                name, _, value = shlex.split(copied)[1].partition("=")
                self.environment[name] = value
        return terminal

    def stop(self) -> None:
        """The last started first: the servers outlive their clients."""
        for terminal in reversed(self.terminals):
            terminal.stop()
            if terminal.process.stdin:
                terminal.process.stdin.close()
