"""``python -m xlaexp.sweep show DIR``: prints a sweep's results again, one that still runs included."""

import argparse
import sys
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from xlaexp.sweep import ledger, results


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m xlaexp.sweep", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="print the table of a sweep, and what is missing")
    show.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    if not (directory / ledger.FILE).exists():
        sys.exit(f"{directory} holds no sweep: there is no {ledger.FILE} in it")
    frame = directory / "multirun.yaml"
    mode = ledger.mode_of(DictConfig(OmegaConf.load(frame))) if frame.exists() else "max"
    found = ledger.Ledger.read(directory)
    if not ledger.in_use(directory):
        found.recover()  # of a sweep that was killed; nothing is written
    results.show(found, mode)


if __name__ == "__main__":
    main()
