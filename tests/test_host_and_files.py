"""The machine, files that are whole, and failures that are told."""

import json
import logging
from pathlib import Path

import pytest

from xlaexp import environment, failure
from xlaexp.callbacks import Callback, Callbacks
from xlaexp.console import ReplicaFilter, speak_as
from xlaexp.files import write_atomic, write_json
from xlaexp.host import detect
from xlaexp.result import Result
from xlaexp.tracking.csv import CSVTracker

RESULT = Result("val/accuracy", 0.5, {"val/accuracy": 0.5}, {"val/loss": 1.0}, 1, 2, 3, 4.0)


def chip(pci: Path, name: str, vendor: str, device: str) -> None:
    (pci / name).mkdir(parents=True)
    (pci / name / "vendor").write_text(vendor + "\n")
    (pci / name / "device").write_text(device + "\n")


def test_chips_are_counted_on_the_bus(tmp_path: Path) -> None:
    assert detect({}, tmp_path).platform == "CPU"
    chip(tmp_path, "0", "0x1ae0", "0x0063")
    chip(tmp_path, "1", "0x1ae0", "0x0063")
    chip(tmp_path, "2", "0x1ae0", "0x9999")
    chip(tmp_path, "3", "0x10de", "0x0063")
    found = detect({"TPU_LIBRARY_PATH": "/libtpu.so"}, tmp_path)
    assert (found.tpu_chips, found.platform) == (2, "TPU")
    assert detect({"TPU_LIBRARY_PATH": "/libtpu.so", "PJRT_DEVICE": "CPU"}, tmp_path).platform == "CPU"


def test_the_environment_is_read() -> None:
    found = detect({"COLAB_RELEASE_TAG": "x", "CPU_NUM_DEVICES": "4", "PJRT_DEVICE": ""})
    assert (found.colab, found.cpu_num_devices, found.pjrt_device) == (True, 4, None)


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(file: Path) -> None:
        file.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    write_json(path, {"a": 1})
    assert json.loads(path.read_text()) == {"a": 1}


def test_an_output_directory_is_claimed_once(tmp_path: Path) -> None:
    environment.claim(tmp_path, "1")
    environment.add(tmp_path, device={"kind": "CPU"})
    with pytest.raises(FileExistsError):
        environment.claim(tmp_path, "2")
    content = json.loads((tmp_path / "environment.json").read_text())
    assert (content["xlaexp"], content["device"]) == ("1", {"kind": "CPU"})


def test_a_result_survives_writing(tmp_path: Path) -> None:
    RESULT.write(tmp_path)
    assert Result.read(tmp_path) == RESULT


def test_the_first_failure_is_kept(tmp_path: Path) -> None:
    assert failure.describe(tmp_path) is None
    assert failure.record(tmp_path, 1, ValueError("first\nmore"))
    assert not failure.record(tmp_path, 0, ValueError("second"))
    assert failure.describe(tmp_path) == "replica 1 failed: ValueError: first"


def test_csv_gains_columns_and_keeps_rows(tmp_path: Path) -> None:
    tracker = CSVTracker(tmp_path)
    tracker.log(1, {"a": 1.5})
    tracker.log(2, {"a": 2.5})
    tracker.evaluate(2, {"b": 3.0})
    assert (tmp_path / "metrics.csv").read_text().split() == ["step,a,b", "1,1.5,", "2,2.5,", "2,,3.0"]


def test_a_callback_that_fails_at_the_end_does_not_keep_others_from_ending() -> None:
    ended = []

    class Failing(Callback):
        def end(self, result: Result | None) -> None:
            raise ValueError("cannot end")

    class Ending(Callback):
        def end(self, result: Result | None) -> None:
            ended.append(result)

    with pytest.raises(ValueError, match="cannot end"):
        Callbacks({"failing": Failing(), "ending": Ending()}).end(RESULT)
    assert ended == [RESULT]


def test_other_replicas_say_warnings_only_and_who_they_are(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(ReplicaFilter())
    log = logging.getLogger("test")
    try:
        speak_as(2)
        with caplog.at_level(logging.INFO):
            log.info("nothing")
            log.warning("look at %d", 5)
    finally:
        speak_as(0)
    assert [record.getMessage() for record in caplog.records] == ["[replica 2] look at 5"]
