"""From Hydra's sweep syntax to Optuna's distributions, and back to overrides."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from xlaexp.config.errors import ConfigError

_INSIDE = 0.618  # of an interval: a value that is not whole where its ends are


@dataclass(frozen=True)
class Parameter:
    """One dimension of a search space."""

    key: str
    """As in an override."""
    distribution: BaseDistribution
    texts: Mapping[Any, str] = field(default_factory=dict)
    """How each choice is written in an override."""

    def override(self, value: Any) -> str:
        """The override that sets it.

        Args:
            value: one that the distribution has.
        """
        return f"{self.key}={self.texts.get(value, value)}"

    def examples(self) -> list[Any]:
        """Values that show whether all of its values are allowed."""
        found = self.distribution
        if isinstance(found, CategoricalDistribution):
            return list(found.choices)
        assert isinstance(found, IntDistribution | FloatDistribution)
        if isinstance(found, FloatDistribution) and found.step is None and found.low < found.high:
            return [found.low, found.low + _INSIDE * (found.high - found.low), found.high]
        return [found.low, found.high]


@dataclass(frozen=True)
class Space:
    """What a search varies, and what it sets in every trial."""

    parameters: Sequence[Parameter]
    fixed: Sequence[str]

    def overrides(self, values: Mapping[str, Any]) -> list[str]:
        """The overrides of a trial.

        Args:
            values: of each parameter by key.
        """
        return [*self.fixed, *(parameter.override(values[parameter.key]) for parameter in self.parameters)]

    def examples(self) -> Iterator[list[str]]:
        """Overrides of trials that together have every choice and both ends of every interval."""
        usual = {parameter.key: parameter.examples()[0] for parameter in self.parameters}
        yield self.overrides(usual)
        for parameter in self.parameters:
            for value in parameter.examples()[1:]:
                yield self.overrides({**usual, parameter.key: value})

    def advice(self) -> dict[str, str]:
        """What may be wrong, by key: Hydra's intervals are of real numbers, whatever their ends are."""
        text = "; an interval of whole numbers is written {0}='int(interval({1:g},{2:g}))'"
        return {
            parameter.key: text.format(parameter.key, found.low, found.high)
            for parameter in self.parameters
            if isinstance(found := parameter.distribution, FloatDistribution) and found.low % 1 == found.high % 1 == 0
        }

    def grid(self) -> dict[str, list[Any]]:
        """All values of each parameter.

        Raises:
            ConfigError: one has infinitely many.
        """
        return {parameter.key: _all(parameter) for parameter in self.parameters}


def parse(overrides: Sequence[Override]) -> Space:
    """The search space of overrides; of several for one key the last one holds.

    Raises:
        ConfigError: an override cannot be searched.
    """
    parameters: dict[str, Parameter] = {}
    fixed: dict[str, str] = {}
    problems = []
    for override in overrides:
        key = override.get_key_element()
        parameters.pop(key, None)
        fixed.pop(key, None)
        try:
            found = _parameter(key, override) if override.is_sweep_override() else None
        except ValueError as error:
            problems.append(f"{override.input_line or key}: {error}")
            continue
        if found is None:
            fixed[key] = f"{key}={override.get_value_element_as_str()}"
        elif isinstance(found.distribution, CategoricalDistribution) and len(found.distribution.choices) == 1:
            fixed[key] = found.override(found.distribution.choices[0])
        else:
            parameters[key] = found
    if problems:
        raise ConfigError(problems)
    return Space(tuple(parameters.values()), tuple(fixed.values()))


def _parameter(key: str, override: Override) -> Parameter:
    value = override.value()
    tags = set(getattr(value, "tags", None) or ())
    if unknown := tags - {"log"}:
        raise ValueError(f"unknown tag {', '.join(sorted(unknown))}; there is tag(log, interval(...))")
    log = "log" in tags
    if isinstance(value, IntervalSweep):
        assert value.start is not None
        assert value.end is not None
        if log and min(value.start, value.end) <= 0:
            raise ValueError("an interval with tag log has to be above 0")
        if isinstance(value.start, int) and isinstance(value.end, int):  # int(interval(1, 10))
            return Parameter(key, IntDistribution(value.start, value.end, log=log))
        return Parameter(key, FloatDistribution(value.start, value.end, log=log))
    if log:
        raise ValueError("tag log is for intervals: tag(log, interval(1e-4, 1e-1))")
    texts = {_choice(v, text): text for v, text in _values(override)}
    values = sorted(texts) if isinstance(value, RangeSweep) else []
    if len(values) > 1 and all(isinstance(v, int) for v in values):
        return Parameter(key, IntDistribution(values[0], values[-1], step=values[1] - values[0]))
    if not texts:
        raise ValueError("has no value")
    return Parameter(key, CategoricalDistribution(tuple(texts)), texts)


def _values(override: Override) -> Iterator[tuple[Any, str]]:
    """Each value of a discrete sweep, and how it is written."""
    texts = [str(text) for text in override.sweep_string_iterator()]
    # A shuffled range would come in another order the second time.
    value = override.value()
    if isinstance(value, RangeSweep):
        kind = float if any(isinstance(v, float) for v in (value.start, value.stop, value.step)) else int
        return iter([(kind(text), text) for text in texts])
    return zip(override.sweep_iterator(), texts, strict=True)


def _choice(value: Any, text: str) -> Any:
    """What Optuna knows a value by: numbers, booleans and null as they are, all else by its text."""
    return value if value is None or isinstance(value, bool | int | float) else text


def _all(parameter: Parameter) -> list[Any]:
    found = parameter.distribution
    if isinstance(found, CategoricalDistribution):
        return list(found.choices)
    if isinstance(found, IntDistribution):
        return list(range(found.low, found.high + 1, found.step))
    raise ConfigError(
        [f"{parameter.key}: hydra/sweeper/sampler=grid takes no interval of real numbers; give choices or a range"]
    )
