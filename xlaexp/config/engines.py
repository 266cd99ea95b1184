"""Launchers that are not ours: what they need, and which options of ours they do not have."""

from collections.abc import Mapping, Sequence

from xlaexp.registry import unknown

GROUP = "hydra/launcher"
OWN = "xlaexp"
OWN_OPTIONS = ("n_jobs", "timeout", "retries", "reuse")
EXTRAS: Mapping[str, str] = {
    "ray": "ray",
    "ray_aws": "ray",
    "submitit_local": "submitit",
    "submitit_slurm": "submitit",
    "joblib": "joblib",
}
"""The extra that brings a launcher's plugin."""

_SAME: Mapping[tuple[str, str], str] = {
    ("ray", "n_jobs"): "+hydra.launcher.ray.init.num_cpus=N (of a Ray that the sweep starts)",
    ("submitit_slurm", "n_jobs"): "hydra.launcher.array_parallelism=N",
    ("submitit_local", "timeout"): "hydra.launcher.timeout_min=N, in minutes",
    ("submitit_slurm", "timeout"): "hydra.launcher.timeout_min=N, in minutes",
}
"""How a launcher calls an option of ours."""


def unknown_launcher(name: str, installed: list[str]) -> str:
    """One sentence for a launcher that Hydra does not know."""
    if name in EXTRAS:
        return f"the plugin of this launcher is not installed; pip install 'xlaexp[{EXTRAS[name]}]'"
    return unknown(GROUP, name, {*installed, *EXTRAS})


def refused(overrides: Sequence[str], launcher: str) -> list[str]:
    """What is wrong with options of ours that ``+`` has forced upon a launcher: it may take them for its own.

    Args:
        overrides: of the command line.
        launcher: the choice that is in effect.
    """
    keys = {override: override.lstrip("+").partition("=")[0] for override in overrides if override.startswith("+")}
    return [f"{override}: {advice}" for override, key in keys.items() if (advice := hint(key, launcher))]


def hint(key: str, launcher: str) -> str | None:
    """Advice for an option that a launcher has not; None where the key is no such option.

    Args:
        key: dotted, of an override.
        launcher: the choice that is in effect.
    """
    parent, _, option = key.rpartition(".")
    if parent != "hydra.launcher":
        return None
    if launcher == OWN:
        return unknown("option of hydra.launcher", option, OWN_OPTIONS)
    if option not in OWN_OPTIONS:
        return None
    what = "reused workers are" if option == "reuse" else "this option is"
    other = f"; {GROUP}={launcher} calls it {same}" if (same := _SAME.get((launcher, option))) else ""
    return f"{what} there only with {GROUP}={OWN}, not with {GROUP}={launcher}; leave it out{other}"
