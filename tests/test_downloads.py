"""Case 20: what is downloaded once, by whoever asks, and is never half visible."""

import errno
import io
import os
import signal
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fresh import Begun, call, output
from test_data import tiny_cifar
from test_sweep import ended_well
from test_sweep_trouble import until
from tiny_data import ARCHIVES, MNIST, Server, ask, md5, mirrored, run, sums, write
from torchvision import datasets

from xlaexp.components.data.cifar import Cifar10
from xlaexp.components.data.downloads import DownloadError, ensure
from xlaexp.components.data.mnist import Mnist

HELD = "train-images-idx3-ubyte.gz"
ONCE = dict.fromkeys(ARCHIVES, 1)
DIRECT = {"no_proxy": "127.0.0.1"}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in DIRECT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def expected(tmp_path: Path) -> list[float]:
    write(tmp_path / "whole" / "MNIST" / "raw", MNIST)
    return sums(Mnist(tmp_path / "whole"))


def whole(raw: Path) -> bool:
    """Whether all files are there that one ought to see, if one sees the directory at all."""
    if not raw.exists():
        return False
    assert {path.name: path.read_bytes() for path in raw.iterdir()} == {**MNIST, **ARCHIVES}
    return True


def seen(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def point_here(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in mirrored(url).items():
        monkeypatch.setattr(datasets.MNIST, name, value)


def test_case_20_four_processes_download_once(tmp_path: Path, expected: list[float]) -> None:
    raw = tmp_path / "data" / "MNIST" / "raw"
    with Server(ARCHIVES, hold=HELD) as server:
        asking = [tmp_path / f"asking-{number}" for number in range(4)]
        processes = [Begun(ask, server.url, tmp_path / "data", path, cwd=tmp_path, env=DIRECT) for path in asking]
        until(lambda: server.held.is_set() and all(path.exists() for path in asking), 60)
        time.sleep(0.2)  # from being about to ask to asking
        # Some files are there, another is half there: nobody may see any of it.
        assert seen(raw.parent) == {".raw.lock", ".raw.partial"}
        server.go.set()
        until(lambda: whole(raw), 60)
        ended = [process.end() for process in processes]
        assert [e.value for e in ended] == [expected] * 4, "\n".join(e.stderr for e in ended)
        assert server.served == ONCE
    assert seen(raw.parent) == {".raw.lock", "raw"}


def test_case_20_four_threads_download_once(
    tmp_path: Path, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(ARCHIVES, hold=HELD) as server, ThreadPoolExecutor(4) as threads:
        point_here(server.url, monkeypatch)
        together = threading.Barrier(5)

        def ask_together() -> list[float]:
            data = Mnist(tmp_path / "data")
            together.wait(60)
            return sums(data)

        asked = [threads.submit(ask_together) for _ in range(4)]
        together.wait(60)
        assert server.held.wait(60)
        time.sleep(0.2)
        assert seen(tmp_path / "data" / "MNIST") == {".raw.lock", ".raw.partial"}
        server.go.set()
        assert [each.result(60) for each in asked] == [expected] * 4
        assert server.served == ONCE


def test_a_download_that_is_killed_leaves_nothing_and_the_next_one_succeeds(
    tmp_path: Path, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    with Server(ARCHIVES, hold=HELD) as server:
        process = Begun(ask, server.url, root, tmp_path / "asking", cwd=tmp_path, env=DIRECT)
        until(server.held.is_set, 60)
        os.kill(process.pid, signal.SIGKILL)
        assert process.end().code == -signal.SIGKILL
        assert seen(root / "MNIST") == {".raw.lock", ".raw.partial"}
        server.go.set()
        point_here(server.url, monkeypatch)
        assert sums(Mnist(root)) == expected
        assert server.served == {name: 2 if name <= HELD else 1 for name in ARCHIVES}  # all of them again
    assert seen(root / "MNIST") == {".raw.lock", "raw"}


def test_a_download_that_ends_in_the_middle_leaves_nothing_and_the_next_one_succeeds(
    tmp_path: Path, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    with Server(ARCHIVES, cut=HELD) as server:
        point_here(server.url, monkeypatch)
        with pytest.raises(DownloadError, match=f"cannot be downloaded into {root}/MNIST/raw: .*corrupted"):
            Mnist(root).train()
        assert seen(root / "MNIST") == {".raw.lock"}
        server.cut = ""
        assert sums(Mnist(root)) == expected


@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")  # torchvision extracts without a filter
def test_of_an_archive_the_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_cifar(Cifar10, tmp_path / "made", monkeypatch)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(tmp_path / "made" / Cifar10._folder, Cifar10._folder)
    with Server({"cifar-10-python.tar.gz": packed.getvalue()}) as server:
        monkeypatch.setattr(datasets.CIFAR10, "url", server.url + "cifar-10-python.tar.gz")
        monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", md5(packed.getvalue()))
        data = Cifar10(tmp_path / "data")
        assert (len(data.train()), len(data.val())) == (10, 2)
        assert server.served == {"cifar-10-python.tar.gz": 1}
    assert seen(tmp_path / "data") == {".cifar-10-batches-py.lock", "cifar-10-batches-py"}


def test_replicas_download_once_into_the_directory_that_was_meant(tmp_path: Path) -> None:
    with Server(ARCHIVES) as server:
        fast = ("debug=fast_run", "loader.batch_size=4", "device=multi", "hydra.job.chdir=true")
        ended_well(call(run, server.url, "data=mnist", "data.root=data", *fast, cwd=tmp_path, env=DIRECT))
        assert server.served == ONCE
    assert "downloads MNIST into" in (output(tmp_path) / "xlaexp.log").read_text()
    assert {name for name in seen(tmp_path) if not name.startswith(".")} == {"data", "outputs"}
    assert whole(tmp_path / "data" / "MNIST" / "raw")


def test_without_a_network_it_says_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server({}) as server:
        pass
    point_here(server.url, monkeypatch)  # nobody listens there any more
    with pytest.raises(DownloadError, match="refused") as caught:
        Mnist(tmp_path / "data").train()
    assert "\n" not in str(caught.value)
    assert f"without a network, put {', '.join(Mnist._files)} into {tmp_path}/data/MNIST/raw" in str(caught.value)


def test_a_full_disk_and_one_that_may_not_be_written_to_have_advice_of_their_own(tmp_path: Path) -> None:
    def full(directory: Path) -> Path:
        (directory / "half").write_text("a")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(DownloadError, match=r"it cannot be .*No space left on device; make room there, or give"):
        ensure(tmp_path / "it", "it", "put it there", full)
    assert seen(tmp_path) == {".it.lock"}
    (tmp_path / "file").touch()
    with pytest.raises(DownloadError, match=r"give a data.root that can be written to, or put it there"):
        ensure(tmp_path / "file" / "it", "it", "put it there", full)
    tmp_path.chmod(0o755)
    assert "Permission denied: 'data'; give a data.root" in call(ask_as_nobody, cwd=tmp_path).value


def ask_as_nobody() -> str:
    """What is said to a user who may not write into the working directory."""
    if os.geteuid() == 0:
        os.seteuid(65534)
    else:
        os.chmod(".", 0o555)
    with pytest.raises(DownloadError) as caught:
        Mnist(Path("data")).train()
    return str(caught.value)
