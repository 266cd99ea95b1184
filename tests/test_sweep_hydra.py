"""What Hydra promises holds under our launcher as under its own, and paths mean what they say."""

import json
from pathlib import Path

import pytest
from composing import config
from fresh import Ended, output, xlaexp
from omegaconf import OmegaConf

from xlaexp.config.resolvers import register_resolvers

PRESET = """
# @package _global_
defaults:
  - override /data: user_package.parts.Noted
  - override /optimizer: sgd
  - override /tracking: csv
loader:
  batch_size: 8
train:
  epochs: 1
  max_steps: 2
data:
  root: ./data
  label: LABEL
  note: ${hydra:job.name} ${hydra:job.override_dirname} ${hydra:runtime.output_dir} ${hydra:runtime.choices.data}
hydra:
  sweep:
    dir: sweep
    subdir: ${hydra:job.num}
  job:
    env_set:
      NOTED: variable of ${hydra:job.override_dirname}
  callbacks:
    recorder:
      _target_: user_package.callbacks.Recorder
      file: ${hydra:runtime.cwd}/called.txt
"""

LOGGING = """
version: 1
disable_existing_loggers: false
formatters:
  own:
    format: 'OWN %(message)s'
handlers:
  own:
    class: logging.FileHandler
    formatter: own
    filename: ${hydra.runtime.output_dir}/own.log
root:
  level: INFO
  handlers: [own]
"""


def ended_well(ended: Ended) -> Ended:
    assert ended.code == 0, ended.stdout + ended.stderr
    return ended


def user_configs(directory: Path, label: str = "job-${hydra:job.num}") -> None:
    """Puts the config files of a user into ``conf``: presets, and a way to log."""
    texts = {f"experiment/noted_{seed}.yaml": f"# @package _global_\nseed: {seed}\n" for seed in (3, 4)}
    texts |= {"debug/noted.yaml": PRESET.replace("LABEL", label), "hydra/job_logging/own.yaml": LOGGING}
    for name, text in texts.items():
        path = directory / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip())


def written(directory: Path) -> set[str]:
    """The files and directories that a command has left, without what the tests themselves put there."""
    return {path.name for path in directory.iterdir() if not path.name.startswith((".stdout", ".stderr"))} - {"conf"}


@pytest.mark.parametrize("chdir", [True, False])
@pytest.mark.parametrize("launcher", ["xlaexp", "basic"])
def test_case_36_and_what_hydra_promises_under_our_launcher_and_its_own(
    launcher: str, chdir: bool, tmp_path: Path
) -> None:
    user_configs(tmp_path)
    command = ("-m", "--config-dir", "conf", "experiment=glob(noted*)", "debug=noted", "hydra/job_logging=own")
    ended_well(xlaexp(*command, f"hydra.job.chdir={chdir}", f"hydra/launcher={launcher}", cwd=tmp_path))
    jobs = [tmp_path / "sweep" / str(number) for number in range(2)]
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"job-0.json", "job-1.json"}
    called = ["multirun starts"]
    for number, directory in enumerate(jobs):
        overrides = f"debug=noted__experiment=noted_{number + 3}"
        assert json.loads((tmp_path / "data" / f"job-{number}.json").read_text()) == {
            "note": f"xlaexp {overrides} {directory} user_package.parts.Noted",
            "cwd": str(directory if chdir else tmp_path),
            "variable": f"variable of {overrides}",
        }
        assert (directory / "own.log").read_text().startswith("OWN ")
        assert not (directory / "xlaexp.log").exists()
        objective = json.loads((directory / "result.json").read_text())["objective"]
        called += [
            f"job seed={number + 3} starts in {directory}, variable of {overrides}",
            f"job seed={number + 3} ends: COMPLETED {objective:.6f}",
        ]
    assert (tmp_path / "called.txt").read_text().splitlines() == [*called, "multirun ends"]
    assert written(tmp_path) == {"sweep", "data", "called.txt"}


def test_interpolations_on_the_command_line_are_each_jobs_own(tmp_path: Path) -> None:
    data = (
        "data=user_package.parts.Noted",
        "+data.root=data",
        "loader.batch_size=8",
        "data.label='job ${hydra:job.num}'",
    )
    short = ("seed=3,4", "debug=fast_run", "tracking=csv", "optimizer=sgd")
    where = ("hydra.sweep.dir=sweep", "hydra.sweep.subdir=${hydra:job.num}-of-${hydra:job.name}")
    ended_well(xlaexp("-m", *data, *short, *where, cwd=tmp_path))
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"job 0.json", "job 1.json"}
    for number in range(2):
        directory = tmp_path / "sweep" / f"{number}-of-xlaexp"
        assert OmegaConf.load(directory / ".hydra" / "config.yaml").seed == number + 3
        assert (directory / "result.json").exists()


@pytest.mark.parametrize("chdir", [True, False])
def test_case_36_a_path_of_a_single_run_is_relative_to_where_it_was_started(chdir: bool, tmp_path: Path) -> None:
    user_configs(tmp_path, label="single")
    devices = "device=multi" if chdir else "device=single"
    ended_well(xlaexp("--config-dir", "conf", "debug=noted", devices, f"hydra.job.chdir={chdir}", cwd=tmp_path))
    noted = json.loads((tmp_path / "data" / "single.json").read_text())
    assert noted["cwd"] == str(output(tmp_path) if chdir else tmp_path)
    assert len((tmp_path / "called.txt").read_text().splitlines()) == 4
    assert written(tmp_path) == {"outputs", "data", "called.txt"}
    inside = {path.name for path in output(tmp_path).iterdir()}
    assert inside == {".hydra", "checkpoints", "environment.json", "metrics.csv", "result.json", "xlaexp.log"}


@pytest.mark.parametrize(
    ("annotation", "given", "expected"),
    [
        ("Path", "./data", "{cwd}/data"),
        ("pathlib.Path | None", "data", "{cwd}/data"),
        ("Union[str, Path]", "../data", "{cwd}/../data"),
        ("'os.PathLike[str]'", "data", "{cwd}/data"),
        ("Path", "/data", "/data"),
        ("str | Path", "gs://bucket/data", "gs://bucket/data"),
        ("Literal['auto'] | Path", "auto", "auto"),
        ("str", "./data", "./data"),
    ],
)
def test_arguments_that_are_annotated_as_paths_are_made_absolute(
    annotation: str, given: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its own name each time: what was read of a module is remembered.
    module = f"sets_{abs(hash((annotation, given)))}"
    imports = "import os\nimport pathlib\nfrom pathlib import Path\nfrom typing import Literal, Union\n"
    Path(f"{module}.py").write_text(f"{imports}def data(root: {annotation}, several: list[Path] = []): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = config(f"data={module}.data", f"+data.root={given}", "data.several=[a,/b]")
    assert str(found.data.args["root"]) == expected.format(cwd=tmp_path)
    assert found.data.args["several"] == [tmp_path / "a", Path("/b")]
    assert found.raw["data"]["root"] == given


def test_every_job_of_a_glob_is_checked_before_the_first_one_starts(tmp_path: Path) -> None:
    # The shipped presets; one of them has such a model.
    ended = xlaexp("-m", "experiment=glob(*)", "model.hidden=[8]", "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert ended.code == 2
    # Presets 0 and 2 have models without this argument.
    assert "jobs 0, 2 (first: experiment=digits_cnn model.hidden=[8]): model.hidden=[8]: unknown key" in ended.stderr
    assert written(tmp_path) == set()


def test_commands_of_the_same_second_get_different_directories() -> None:
    register_resolvers()
    names = {OmegaConf.create({"dir": "${unique:same-second}"}).dir for _ in range(20)}
    assert len(names) == 20
    once = OmegaConf.create({"dir": "${unique:same-second}"})
    assert once.dir == once.dir  # for all jobs of a sweep it is the same
