"""Tiny data sets in the real formats, a server that they are downloaded from, and what asks for them."""

import gzip
import hashlib
import pickle
import struct
import threading
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import fresh
import numpy as np
from torchvision import datasets

from xlaexp.components.data.mnist import Mnist

_random = np.random.default_rng(0)
IMAGES = {part: _random.integers(256, size=(n, 28, 28), dtype=np.uint8) for part, n in (("train", 32), ("t10k", 8))}
LABELS = {part: _random.integers(10, size=len(images), dtype=np.uint8) for part, images in IMAGES.items()}


def idx(array: np.ndarray) -> bytes:
    """An IDX file of bytes."""
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


MNIST = {
    f"{part}-{kind}-idx{array.ndim}-ubyte": idx(array)
    for kind, arrays in (("images", IMAGES), ("labels", LABELS))
    for part, array in arrays.items()
}
"""Contents of the files of MNIST/raw, by name."""
ARCHIVES = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in MNIST.items()}


def write(directory: Path, files: Mapping[str, bytes]) -> Path:
    """Writes files into a new directory."""
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def cifar(images: np.ndarray, labels: list[int], key: str) -> bytes:
    """A file of a CIFAR: images of shape (n, 3, 32, 32)."""
    names = [f"{number}.png" for number in range(len(labels))]
    entry = {"batch_label": "tiny", key: labels, "data": images.reshape(len(labels), -1), "filenames": names}
    return pickle.dumps(entry, protocol=2)


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def mirrored(url: str) -> dict[str, Any]:
    """The attributes of torchvision's MNIST with which it downloads the tiny one from a server."""
    return {"mirrors": [url], "resources": [(name, md5(ARCHIVES[name])) for name in sorted(ARCHIVES)]}


class Server:
    """Serves files on 127.0.0.1.

    Args:
        files: contents by name.
        hold: the file whose content has to wait for ``go``.
        cut: the file that ends in the middle, with the connection.

    Attributes:
        url: of the directory of the files.
        served: how often each file was asked for (torchvision asks twice, once for where it is only).
        held: whether somebody waits for the file that is held.
    """

    def __init__(self, files: Mapping[str, bytes], hold: str = "", cut: str = "") -> None:
        self.served: Counter[str] = Counter()
        self.held, self.go = threading.Event(), threading.Event()
        self.cut = cut
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rpartition("/")[2]
                content = files[name]
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.headers["Method"] == "HEAD":  # torchvision's way to ask for where a file is
                    return
                server.served[name] += 1
                if name == hold:
                    server.held.set()
                    server.go.wait(60)
                self.wfile.write(content[: len(content) // 2] if name == server.cut else content)

            def log_message(self, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: Any) -> None:
                pass  # a client that was killed has closed its connection

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()


def point(url: str) -> None:
    """Lets torchvision's MNIST in this process be downloaded from a server."""
    for name, value in mirrored(url).items():
        setattr(datasets.MNIST, name, value)


def ask(url: str, root: Path, asking: Path) -> list[float]:
    """Samples of the tiny MNIST as a process gets them; touches a file when it is about to ask for them."""
    point(url)
    data = Mnist(root)
    asking.touch()
    return sums(data)


def run(url: str, *overrides: str) -> None:
    """``python -m xlaexp OVERRIDES``, with MNIST downloaded from a server."""
    point(url)
    fresh.main(*overrides)


def sums(data: Mnist) -> list[float]:
    """The sums of the pixels to train and to validate on."""
    parts = ((part, range(len(part))) for part in (data.train(), data.val()))
    return [float(part.batch(every)[0].double().sum()) for part, every in parts]
