"""``environment.json``: what a run was made with. Writing it also claims the output directory."""

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from xlaexp.files import write_json

FILE = "environment.json"
_PACKAGES = ("torch", "torch_xla", "torchvision", "libtpu", "hydra-core", "omegaconf", "numpy", "tensorboard")
_OUTCOMES = ("result.json", "failure.json")
_VARIABLES = (
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "PJRT_DEVICE",
    "CPU_NUM_DEVICES",
    "TPU_NUM_DEVICES",
)


def claim(directory: Path, version: str, again: bool = False) -> None:
    """Makes an output directory this run's own, and writes what is known before the launch.

    Args:
        directory: the output directory, which exists.
        version: xlaexp's own version.
        again: whether the run that has the directory already goes on; what it was made with before is kept.

    Raises:
        FileExistsError: the directory already holds a run.
    """
    content = {
        "xlaexp": version,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions(),
        "git": _git(Path.cwd()),
        "command": [Path(sys.executable).name, *sys.orig_argv[1:]],
        "directory": str(Path.cwd()),
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }
    path = directory / FILE
    if again and path.exists():
        before = json.loads(path.read_text())
        content["before"] = [*before.pop("before", []), before]
        for left in _OUTCOMES:  # of the part that has ended
            (directory / left).unlink(missing_ok=True)
        write_json(path, content)
        return
    whole = path.with_name(f".{path.name}.{os.getpid()}.new")
    write_json(whole, content)
    try:
        os.link(whole, path)  # fails where there is one
    finally:
        whole.unlink()


def versions() -> dict[str, str]:
    """Versions of the packages that decide about numbers."""
    return {name: found for name in _PACKAGES if (found := _version(name))}


def add(directory: Path, **facts: Any) -> None:
    """Adds what only a replica can know (device kind and count)."""
    path = directory / FILE
    write_json(path, {**json.loads(path.read_text()), **facts})


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(directory: Path) -> dict[str, Any] | None:
    """Revision of the working tree that the run was started in, and whether it has changes."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(directory), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        return {"revision": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None
