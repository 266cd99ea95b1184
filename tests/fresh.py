"""Calls functions in fresh processes that have torch and torch_xla imported and no XLA runtime started.

A process is forked from a server that has done the imports, so that it costs hundredths of a second instead of
many seconds. The code under test is the same as in a process of its own.
"""

import contextlib
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["xlaexp.launch", "xlaexp.cli", "sklearn.datasets", "torchvision.models", "in_replica"])

_VARIABLES = ("PJRT_DEVICE", "CPU_NUM_DEVICES", "TPU_PROCESS_ADDRESSES", "COLAB_RELEASE_TAG")


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    code: int
    value: Any
    stdout: str
    stderr: str


def call(
    fn: Callable[..., Any],
    *args: Any,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 200,
) -> Ended:
    """Calls ``fn(*args)`` in a fresh process; never raises what it raises.

    Args:
        fn: a function of an importable module.
        args: its arguments.
        cwd: working directory; output files of the process are put there.
        env: environment variables to set.
        timeout: seconds after which the process is killed.
    """
    return Begun(fn, *args, cwd=cwd, env=env).end(timeout)


class Begun:
    """A call in a fresh process, which leads a process group of its own; see :func:`call`.

    Attributes:
        pid: of the process, and of its group.
    """

    def __init__(
        self, fn: Callable[..., Any], *args: Any, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        directory = cwd or Path.cwd()
        number = len(list(directory.glob(".stdout-*")))
        self._out, self._err = directory / f".stdout-{number}", directory / f".stderr-{number}"
        self._receiver, sender = _context.Pipe(duplex=False)
        self._process = _context.Process(
            target=_child, args=(sender, fn, args, str(directory), dict(env or {}), self._out, self._err)
        )
        self._process.start()
        sender.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def end(self, timeout: float = 200) -> Ended:
        """Waits for its end."""
        value = None
        with contextlib.suppress(EOFError):
            if self._receiver.poll(timeout):
                value = self._receiver.recv()
        self._process.join(10 if value is not None else timeout)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
            raise TimeoutError(f"no end after {timeout} s:\n{self._out.read_text()}\n{self._err.read_text()}")
        return Ended(self._process.exitcode, value, self._out.read_text(), self._err.read_text())

    def left(self) -> bool:
        """Whether a process of its group is alive."""
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, group = path.read_text().rpartition(")")[2].split()[:3]
                if int(group) == self.pid and state != "Z":
                    return True
        return False


def _child(
    sender: Connection, fn: Callable[..., Any], args: Any, cwd: str, env: Mapping[str, str], out: Path, err: Path
) -> None:
    os.setpgid(0, 0)
    for stream, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, stream)
    os.chdir(cwd)
    for name in _VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(env)
    try:
        sender.send(fn(*args))
    except Exception:
        traceback.print_exc()
        sys.exit(1)


def main(*overrides: str) -> None:
    """``python -m xlaexp OVERRIDES`` in the calling process."""
    from xlaexp import cli

    sys.argv = ["xlaexp", *overrides]
    cli.main()


def xlaexp(*overrides: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 200) -> Ended:
    """``python -m xlaexp OVERRIDES`` in a fresh process, in the directory ``cwd``."""
    return call(main, *overrides, cwd=cwd, env=env, timeout=timeout)


def output(cwd: Path) -> Path:
    """The output directory of the one run that was started in ``cwd``."""
    (directory,) = cwd.glob("outputs/*/*")
    return directory


def limited(size: int, *overrides: str) -> None:
    """:func:`main` where no file may grow beyond ``size`` bytes, as on a full disk."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    main(*overrides)
