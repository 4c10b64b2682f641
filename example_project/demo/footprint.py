"""What the demo leaves on the machine: it looks instead of promising."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil

_RUN_VARIABLE = "TURNKIT_DEMO_RUN"
_GONE_SECONDS = 5.0


@dataclass
class Footprint:
    """One run of the demo.

    Attributes:
        name: Unique; every process of the run inherits it in its environment.
        folder: Where every process of the run puts its temporary files.
    """

    name: str
    folder: Path
    _seen: set[psutil.Process] = field(default_factory=set)
    _other_folders: set[Path] = field(default_factory=set)

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def look(self) -> None:
        """Remember the processes that run now, grandchildren too."""
        self._seen.update(psutil.Process().children(recursive=True))

    def remember_server(self, database_url: str) -> None:
        """Remember the folder of a PostgreSQL that listens on a socket: it need not be in `folder`."""
        # Not `.hostname`, which is in lower case.
        host = unquote(urlsplit(database_url).netloc.rpartition("@")[2].partition(":")[0])
        if host.startswith("/"):
            self._other_folders.add(Path(host).parent)

    def leftovers(self) -> list[str]:
        """What is still there, once everything was stopped: processes, files, folders."""
        _, alive = psutil.wait_procs(self._seen, timeout=_GONE_SECONDS)
        found = [f"process {process.pid}" for process in {*alive, *self._marked()}]
        # The demo's own logs are removed last, because a failure quotes them.
        found += [str(path) for path in self.folder.rglob("*") if not path.is_relative_to(self.logs)]
        found += [str(path) for path in self._other_folders if path.exists()]
        return sorted(found)

    def _marked(self) -> Iterator[psutil.Process]:
        """Processes of this run that nobody remembers, such as the child of a dead child."""
        for process in psutil.process_iter():
            try:
                is_ours = process.environ().get(_RUN_VARIABLE) == self.name
            except (psutil.Error, OSError):
                continue  # another user's, or gone
            if is_ours and process.pid != os.getpid():
                yield process

    @property
    def seen(self) -> int:
        return len(self._seen)


@contextmanager
def footprint() -> Iterator[Footprint]:
    """Begin a run: from here on this process and its children keep their temporary files in one folder."""
    name = f"turnkit-demo-{secrets.token_hex(4)}"
    folder = Path(tempfile.gettempdir()).resolve() / name
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        # As root PostgreSQL runs as another user, who has to pass through.
        folder.chmod(0o711)
    os.environ |= {_RUN_VARIABLE: name, "TMPDIR": str(folder)}
    tempfile.tempdir = None  # read TMPDIR again
    run = Footprint(name, folder)
    run.logs.mkdir()
    try:
        yield run
    finally:
        shutil.rmtree(folder)
