"""A data set that changes its process in every way it can, and fails where another one has done so before."""

import logging
import os
import random
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import torch
from omegaconf import OmegaConf

from user_package.parts import PoisonedData
from xlaexp.registry import DATASETS

built = 0
OmegaConf.register_new_resolver("leaky", lambda: "leak")  # raises where it is registered already


def traces() -> list[str]:
    """What a job before this one has left in the process."""
    log = logging.getLogger("leaky")
    found = {
        "module": built,
        "environment": os.environ.get("LEAKY"),
        "directory": Path.cwd().name == "leak",
        "path": "leak" in sys.path,
        "level": log.level,
        "handler": log.handlers,
        "dtype": torch.get_default_dtype() != torch.float32,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "numpy": np.geterr()["over"] == "raise",
        "warnings": any(entry[0] == "error" and entry[2] is ResourceWarning for entry in warnings.filters),
    }
    return [name for name, value in found.items() if value]


@DATASETS.register("leaky")
class Leaky(PoisonedData):
    """Draws its samples from every random stream of the host.

    Args:
        job: tells jobs apart.
        thread: leave a thread behind.
        abort: end the process.
    """

    def __init__(self, job: int = 0, thread: bool = False, abort: bool = False) -> None:
        global built
        super().__init__(at=-1)
        if left := traces():
            raise RuntimeError(f"left by another job: {left}")
        if abort:
            os.abort()
        built += 1
        self._draws = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        logging.getLogger("user_package").info("draws: %s", self._draws)
        os.environ["LEAKY"] = "leak"
        Path("leak").mkdir(exist_ok=True)
        os.chdir("leak")
        sys.path.append("leak")
        log = logging.getLogger("leaky")
        log.setLevel(logging.DEBUG)
        log.addHandler(logging.FileHandler("leak.log"))
        np.seterr(over="raise")
        torch.use_deterministic_algorithms(True)
        warnings.simplefilter("error", ResourceWarning)
        random.seed()
        np.random.seed(None)
        if thread:
            # One that is no daemon keeps the process from ending.
            threading.Thread(target=threading.Event().wait, daemon=job > 0).start()
