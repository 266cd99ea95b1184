"""Group choices that no file stands for.

They are ``model=torchvision/<name>``, ``optimizer=<class of torch.optim>``, ``metrics=torchmetrics/<class>``, and for
any kind of component the dotted path of a user's own: ``model=my_package.nets.Net``. What a config has any number of
goes under its own name: ``metrics=my_package.F1`` is the metric ``val/F1``.
"""

import re
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from xlaexp.config import catalog
from xlaexp.config.components import MAPPINGS, OFFERED, offered_to
from xlaexp.signatures import Signature, signature
from xlaexp.source import locate

SCHEME = "xlaexp"
_PLAIN = (bool, int, float, str, list, tuple, type(None))
# Arguments that make no sense in a config file of a run that starts from scratch.
_LEFT_OUT = frozenset({"weights", "progress"})


def _choices() -> dict[str, tuple[str, ...]]:
    return {
        "model/torchvision": catalog.torchvision_models(),
        "optimizer": catalog.torch_optimizers(),
        "metrics/torchmetrics": tuple(catalog.torchmetrics_classes()),
    }


class ComponentSource(ConfigSource):
    """Offers library components as group choices; their config is their signature's defaults."""

    @staticmethod
    def scheme() -> str:
        """The scheme of this source in the search path."""
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        """The config of such a choice: its name or path, and the defaults of its signature."""
        path = self._normalize(config_path)
        if not self.is_config(config_path):
            raise ConfigLoadError(f"{path} is no component")
        kind, _, name = path.partition("/")
        entry = catalog.find(kind, name)
        dotted = f"{entry.module}.{entry.attribute}" if entry else name
        found = signature(dotted) or Signature()
        node: dict[str, Any] = {"name": name} if entry else {"_target_": name}
        for argument, parameter in found.parameters.items():
            if argument in offered_to(kind, dotted, found) | _LEFT_OUT:
                continue
            if parameter.required:
                node[argument] = "???"
            elif kind == "metrics" and argument not in found.positional:
                pass  # a choice of torchmetrics passes it on to one of several classes, and not all of them take it
            elif isinstance(parameter.default, _PLAIN):
                default = parameter.default
                node[argument] = list(default) if isinstance(default, tuple) else default
        if kind in MAPPINGS:
            node = {re.split(r"[./]", name)[-1]: node}
        return ConfigResult(
            config=OmegaConf.create(node),
            header={"package": kind},
            path=f"{SCHEME}://{self.path}",
            provider=self.provider,
        )

    def available(self) -> bool:
        """Always there."""
        return True

    def is_group(self, config_path: str) -> bool:
        """Whether a path is a group with such choices."""
        path = self._normalize(config_path)
        return path in ("", *OFFERED, *_choices())

    def is_config(self, config_path: str) -> bool:
        """Whether a path is such a choice."""
        group, _, name = self._normalize(config_path).rpartition("/")
        return name in _choices().get(group, ()) or (group in OFFERED and "." in name and locate(name) is not None)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Choices (and groups) directly under a path."""
        path = self._normalize(config_path)
        groups = {
            "": ["model", "optimizer", "metrics"],
            "model": ["torchvision"],
            "metrics": ["torchmetrics"],
        }.get(path, [])
        names = list(_choices().get(path, ()))
        if results_filter is ObjectType.GROUP:
            return sorted(groups)
        return sorted(names if results_filter is ObjectType.CONFIG else {*groups, *names})

    @staticmethod
    def _normalize(path: str) -> str:
        return path.strip("/").removesuffix(".yaml")


class ComponentSearchPath(SearchPathPlugin):
    """Puts the library components at the end of Hydra's search path: files come first."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Appends the source."""
        search_path.append(provider="xlaexp", path=f"{SCHEME}://components")


def register() -> None:
    """Makes Hydra know the two plugins; may be called again."""
    plugins = Plugins.instance()
    plugins.register(ComponentSource)
    plugins.register(ComponentSearchPath)
