"""The processes of a run as one: what one of them says or suffers, all of them know.

Whatever a process does for itself lies in a block `with group.together()`. When it fails there, it says so in
the next exchange, where the others wait: nobody waits for a process that does not come.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from onnxgrad.errors import ParallelError
from onnxgrad.train.parallel.communicator import Alone, Communicator

Result = TypeVar("Result")


class Group:
    """A Communicator with an agreement about failures."""

    def __init__(self, communicator: Communicator | None = None):
        self.communicator = communicator or Alone()
        self.rank, self.size = self.communicator.rank, self.communicator.size

    @property
    def writes(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def gather(self, what: str, value: Any = None) -> list[Any]:
        """Return what every process gave, by rank; raise ParallelError where one has failed, or does something else.

        `what` is what the caller is doing, in words.
        """
        if self.size == 1:
            return [value]
        answers = self.communicator.all_gather((what, None, value))
        self._check(answers)
        return [value for _, _, value in answers]

    def _check(self, answers: list[tuple]) -> None:
        for rank, (_, failure, _) in enumerate(answers):
            if failure is not None:
                raise ParallelError(f"process {rank} of {self.size} has stopped: {failure}", rank)
        doing = {what: rank for rank, (what, _, _) in reversed(list(enumerate(answers)))}
        if len(doing) > 1:
            listed = ", ".join(f"process {rank}: {what}" for what, rank in doing.items())
            raise ParallelError(
                f"the processes do different things ({listed}); expected the same calls in each of them"
            )

    def first(self, what: str, function: Callable[[], Result]) -> Result:
        """Call a function in process 0 only; return what it returned in all of them."""
        with self.together():
            value = function() if self.writes else None
        return self.gather(what, value)[0]

    def equal(self, what: str, value: Any) -> None:
        """Raise ParallelError unless all processes have the same value."""
        values = self.gather(what, value)
        for rank, other in enumerate(values):
            if other != values[0]:
                raise ParallelError(
                    f"process {rank} has another {what} than process 0: {other!r}, not {values[0]!r}",
                    rank,
                )

    def together(self) -> contextlib.AbstractContextManager[None]:
        """Within it, an error of this process becomes a ParallelError of the others."""
        return contextlib.nullcontext() if self.size == 1 else self._telling()

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except ParallelError:
            raise  # all know it
        except BaseException as error:
            if not _is_told(error):
                error.told_to_all = True
                self.communicator.all_gather(("", _sentence(error), None))
            raise


def _is_told(error: BaseException | None) -> bool:
    """Whether the others know it, from an inner block, of whatever Group; another error may wrap it since."""
    while error is not None:
        if getattr(error, "told_to_all", False) or isinstance(error, ParallelError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _sentence(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return str(error).strip() or type(error).__name__
