"""What a step raises before it would spoil the weights."""

from onnxgrad.errors import DivergedError


class NotFinite(Exception):
    """A loss or gradient that is not finite; `what` says which. Nothing was changed."""

    def __init__(self, what: str):
        super().__init__(f"{what} is not finite")
        self.what = what


def diverged(what: str, tensor: str, step: int) -> DivergedError:
    """What a user gets to read: the step, and the first tensor that is not finite."""
    return DivergedError(
        f"step {step}: {what} is not finite; the first such tensor is {tensor!r}. "
        "The weights are those before the step; a smaller lr or clip_norm may help",
        tensor, step,
    )  # fmt: skip
