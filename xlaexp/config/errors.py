"""The one exception for a config that cannot run."""

from collections.abc import Sequence


class ConfigError(Exception):
    """Everything that is wrong with a config, at once.

    Args:
        problems: one sentence each, with the override that cures it.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__("\n".join(self.problems))

    def __str__(self) -> str:
        count = len(self.problems)
        head = "The config has an error:" if count == 1 else f"The config has {count} errors:"
        return "\n".join([head, *(f"  - {problem}" for problem in self.problems)])

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[tuple[str, ...]]]:
        return type(self), (self.problems,)
