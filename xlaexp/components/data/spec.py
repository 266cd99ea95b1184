"""What a model has to know about the data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Spec:
    """Shape and labels of the samples.

    Attributes:
        input_shape: shape of one sample, without the batch dimension.
        num_classes: number of labels, which are 0 to num_classes - 1.
    """

    input_shape: tuple[int, ...]
    num_classes: int
