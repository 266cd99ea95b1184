"""Which replica sees which samples."""

import math

import numpy as np
import pytest
import torch

from xlaexp.components.data.arrays import ArrayDataset
from xlaexp.components.data.digits import SAMPLES, Digits
from xlaexp.components.data.fake import Fake
from xlaexp.components.data.loading import Batches, MaskedBatches, loader
from xlaexp.components.data.sampling import Draw, EvalBatches, TrainBatches


def numbered(samples: int) -> ArrayDataset:
    numbers = np.arange(samples)
    return ArrayDataset(numbers.astype(np.float32)[:, None], numbers)


@pytest.mark.parametrize("drop_last", [True, False])
def test_case_18_every_replica_has_as_many_batches(drop_last: bool) -> None:
    for samples in range(1, 21):
        for replicas in range(1, 9):
            for batch_size in (1, 3):
                lengths = []
                for ordinal in range(replicas):
                    arguments = (samples, replicas, ordinal, 0, batch_size, drop_last)
                    if drop_last and samples < replicas * batch_size:
                        with pytest.raises(ValueError, match=f"n={samples} samples.*bs={batch_size}.*ws={replicas}"):
                            TrainBatches(*arguments)
                        continue
                    batches = TrainBatches(*arguments)
                    seen = list(batches)
                    assert len(seen) == len(batches)
                    lengths.append([len(batch.indices) for batch in seen])
                    assert lengths[-1] == batches.sizes()
                    assert all(lengths[-1])
                assert all(each == lengths[0] for each in lengths)


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_a_step_of_all_replicas_takes_the_same_samples_however_many_there_are(replicas: int) -> None:
    together = TrainBatches(48, 1, 0, 7, 12, True)
    together.start(3)
    shares = [TrainBatches(48, replicas, ordinal, 7, 12 // replicas, True) for ordinal in range(replicas)]
    for share in shares:
        share.start(3)
    for whole, *parts in zip(together, *shares, strict=True):
        assert sorted(whole.indices) == sorted(index for part in parts for index in part.indices)


def test_a_limit_repeats_the_same_batches_in_every_epoch() -> None:
    batches = TrainBatches(40, 1, 0, 0, 4, True, limit=2)
    first = [batch.indices for batch in batches]
    batches.start(5)
    assert len(first) == len(batches) == 2
    assert [batch.indices for batch in batches] == first


def test_an_evaluation_sees_every_sample_once_in_batches_of_one_shape() -> None:
    for samples in range(1, 21):
        for replicas in range(1, 9):
            shares = [EvalBatches(range(samples), replicas, ordinal, 3) for ordinal in range(replicas)]
            assert {len(share) for share in shares} == {math.ceil(samples / (3 * replicas))}
            seen = [index for share in shares for batch in share for index in batch.indices if index is not None]
            assert sorted(seen) == list(range(samples))
            assert {len(batch.indices) for share in shares for batch in share} == {3}


def test_masks_tell_samples_from_padding() -> None:
    batches = list(loader(MaskedBatches(numbered(5)), EvalBatches(range(5), 2, 1, 2), 0))
    (inputs, targets, mask) = batches[0]
    assert targets.tolist() == [1, 3]
    assert mask.tolist() == [1.0, 1.0]
    assert inputs.shape == (2, 1)
    (inputs, targets, mask) = batches[1]
    assert mask.tolist() == [0.0, 0.0]
    assert inputs.shape == (2, 1)


def test_samples_are_collated_where_a_data_set_serves_no_batches() -> None:
    class Plain(torch.utils.data.Dataset[tuple[int, float]]):
        def __getitem__(self, index: int) -> tuple[int, float]:
            return index, index / 2

    numbers, halves = Batches(Plain())[Draw([3, 1], 0)]
    assert numbers.tolist() == [3, 1]
    assert halves.tolist() == [1.5, 0.5]


def test_digits_are_split_once_whatever_the_fraction() -> None:
    digits = Digits(val_fraction=0.25)
    assert digits.lengths() == (len(digits.train()), len(digits.val())) == (SAMPLES - 449, 449)
    inputs, targets = digits.train().batch(range(10))
    assert inputs.shape == (10, 1, 8, 8)
    assert inputs.dtype == torch.float32
    assert float(inputs.min()) >= -1
    assert float(inputs.max()) <= 1
    assert targets.dtype == torch.int64
    seen = torch.cat([digits.val().batch(range(449))[0], digits.train().batch(range(SAMPLES - 449))[0]])
    # All 1,797 of them, each once: they are not all different, so that their sum has to do.
    from sklearn.datasets import load_digits

    assert float(((seen + 1) * 8).double().sum()) == pytest.approx(load_digits().data.sum())


def test_digits_enlarge_and_repeat_pixels() -> None:
    small, large = Digits().val().batch([0])[0], Digits(channels=3, image_size=32).val().batch([0])[0]
    assert large.shape == (1, 3, 32, 32)
    assert torch.equal(large[:, :, ::4, ::4], small.expand(1, 3, 8, 8))


def test_fake_data_have_the_shape_asked_for_and_repeat() -> None:
    fake = Fake(shape=[2, 5], num_classes=3, train_size=7, val_size=4)
    assert fake.lengths() == (len(fake.train()), len(fake.val())) == (7, 4)
    assert torch.equal(fake.train().batch([1, 2])[0], Fake([2, 5], 3, 7, 4).train().batch([1, 2])[0])
    assert not torch.equal(fake.train().batch([0])[0], fake.val().batch([0])[0])
    with pytest.raises(ValueError, match="at least 1"):
        Fake(train_size=0)
