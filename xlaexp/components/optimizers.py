"""Optimizers under their short names; every class of torch.optim goes by its own name as well."""

from torch import optim

from xlaexp.registry import OPTIMIZERS


@OPTIMIZERS.register("sgd")
class SGD(optim.SGD):
    """Stochastic gradient descent (:class:`torch.optim.SGD`)."""


@OPTIMIZERS.register("adam")
class Adam(optim.Adam):
    """Adam (:class:`torch.optim.Adam`)."""


@OPTIMIZERS.register("adamw")
class AdamW(optim.AdamW):
    """Adam with decoupled weight decay (:class:`torch.optim.AdamW`)."""
