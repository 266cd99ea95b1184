"""Kills runs at random moments and damages their checkpoints, resumes them, and compares the ends to the bit.

``python scripts/faults.py`` takes minutes; it exits with 1 if anything was lost.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import torch
from fresh import Begun, Ended, main

CELLS = "single+plain,single+mp_device_loader,multi+plain,multi+mp_device_loader"
RUN = (
    *("model.hidden=[32]", "model.dropout=0.2", "train.epochs=8", "train.max_steps=150", "train.ema_decay=0.9"),
    *("checkpoint.unit=step", "checkpoint.every=4", "checkpoint.keep_last=5", "tracking=csv", "optimizer=adamw"),
)
_TIMEOUT_S = 120.0


class Cell:
    """Runs of one device and loader.

    Args:
        name: both, as ``single+plain``.
        directory: where the runs are.
        chance: says when, whom and what.
    """

    def __init__(self, name: str, directory: Path, chance: random.Random) -> None:
        device, loader = name.split("+")
        self._command = (*RUN, f"device={device}", f"loader={loader}")
        self._directory, self._chance = directory, chance
        self.lost: list[str] = []
        self.noticed = 0
        directory.mkdir(parents=True)
        started = time.monotonic()
        self._whole = directory / "whole"
        ended = self._start(self._whole, "checkpoint.keep_last=1000").end(_TIMEOUT_S)
        if ended.code:
            raise RuntimeError(ended.stdout + ended.stderr)
        self._seconds = time.monotonic() - started
        self._end = self._state(self._whole)

    def kill(self, times: int) -> int:
        """Kills a run, resumes it, kills it ...; returns how often it went on as if nothing had happened."""
        survived = pending = number = 0
        while survived + len(self.lost) < times:
            directory = self._directory / f"killed-{number}"
            run = self._start(directory, "resume=auto")
            if survived + len(self.lost) + pending < times:
                time.sleep(self._chance.uniform(0, 0.8 * self._seconds))
                if self._kill(run):
                    pending += 1
                    continue
            if (problem := self._problem(run.end(_TIMEOUT_S), directory)) is None:
                survived += pending
            else:
                self.lost += [problem] * max(1, pending)
            pending, number = 0, number + 1
        return survived

    def corrupt(self, times: int) -> int:
        """Damages the newest checkpoint of an interrupted run, and resumes it; returns how often that went well."""
        survived = 0
        for number in range(times):
            directory = self._directory / f"damaged-{number}"
            shutil.copytree(self._whole, directory)
            (directory / "result.json").unlink()
            paths = sorted((directory / "checkpoints").glob("step-*.pt"))
            newest = self._chance.randrange(1, len(paths))
            for path in (*paths[newest + 1 :], *(directory / "checkpoints").glob("[bl]*.pt")):
                path.unlink()
            how = self._damage(paths[newest])
            ended = self._start(directory, "resume=auto").end(_TIMEOUT_S)
            # A bit between the parts of the archive may be anything: then the damage is none.
            self.noticed += f"{paths[newest].name} is damaged" in ended.stdout
            if (problem := self._problem(ended, directory)) is None:
                survived += 1
            else:
                self.lost.append(f"{paths[newest].name}, {how}: {problem}")
            shutil.rmtree(directory)
        return survived

    def _start(self, directory: Path, *overrides: str) -> Begun:
        return Begun(main, *self._command, f"hydra.run.dir={directory}", *overrides, cwd=self._directory)

    def _kill(self, run: Begun) -> bool:
        """With ``kill -9`` all processes of a run, or the first one alone; False if it has ended."""
        try:
            (os.killpg if self._chance.random() < 0.5 else os.kill)(run.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        ended = run.end(10)
        deadline = time.monotonic() + 20
        while run.left():
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes of {run.pid} are left")
            time.sleep(0.05)
        return ended.code == -signal.SIGKILL

    def _problem(self, ended: Ended, directory: Path) -> str | None:
        if ended.code:
            return f"exit code {ended.code}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        if different := difference(self._state(directory), self._end):
            return f"another end in {directory}: {different}"
        return None

    def _damage(self, path: Path) -> str:
        content = bytearray(path.read_bytes())
        how = self._chance.choice(("truncated", "a bit flipped", "empty"))
        if how == "truncated":
            del content[self._chance.randrange(1, len(content)) :]
        elif how == "empty":
            content.clear()
        else:
            place = self._chance.randrange(len(content))
            content[place] ^= 1 << self._chance.randrange(8)
            how = f"{how} in byte {place} of {len(content)}"
        path.write_bytes(content)
        return how

    def _state(self, directory: Path) -> dict[str, Any]:
        state: dict[str, Any] = torch.load(directory / "checkpoints" / "last.pt", weights_only=True)
        return {name: value for name, value in state.items() if name not in ("config", "callbacks")}


def difference(first: Any, second: Any, where: str = "") -> str:
    """Where two states are not equal to the bit, or ""."""
    if isinstance(first, torch.Tensor):
        return "" if torch.equal(first, second) else where
    if isinstance(first, dict) and first.keys() == second.keys():
        return next((d for key in first if (d := difference(first[key], second[key], f"{where}.{key}"))), "")
    if isinstance(first, list | tuple) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return next((d for number, pair in pairs if (d := difference(*pair, f"{where}.{number}"))), "")
    return "" if first == second else where


def run() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each cell")
    parser.add_argument("--corruptions", type=int, default=20, help="of each cell")
    parser.add_argument("--cells", default=CELLS, help="device+loader, ...")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument(
        "--in", dest="directory", type=Path, help="where the runs are kept; they are removed if not given"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        lost = False
        for name in arguments.cells.split(","):
            directory = (arguments.directory or Path(temporary)) / name
            cell = Cell(name, directory, random.Random(f"{arguments.seed} {name}"))
            started = time.monotonic()
            killed, damaged = cell.kill(arguments.kills), cell.corrupt(arguments.corruptions)
            print(
                f"{name}: {killed} of {arguments.kills} kills survived, {damaged} of {arguments.corruptions} "
                f"corruptions survived, {f'{len(cell.lost)} lost' if cell.lost else 'nothing lost'} "
                f"({cell.noticed} noticed, {time.monotonic() - started:.0f} s)",
                *cell.lost,
                sep="\n  ",
                flush=True,
            )
            lost |= bool(cell.lost)
    return int(lost)


if __name__ == "__main__":
    sys.exit(run())
