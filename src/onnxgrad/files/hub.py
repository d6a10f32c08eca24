"""Models of the Hugging Face hub: `hf://org/repo@revision/onnx/model.onnx` becomes a file in huggingface_hub's cache.

Beside the model come its external weights, and what says how its inputs are made. With `HF_HUB_OFFLINE=1`, or without
a network, what the cache holds is used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from onnxgrad.errors import FileError, MissingFileError
from onnxgrad.files import external, tensors
from onnxgrad.files.paths import printable, root

PREFIX = "hf://"
INSTALL = "pip install 'onnxgrad[hub]'"
# What says how inputs are made and what the classes are called; a repository has some of them.
COMPANIONS = (
    "config.json", "preprocessor_config.json", "processor_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json",
)  # fmt: skip
_NAME = r"[\w.-]{1,96}"
_ADDRESS = re.compile(rf"hf://({_NAME}/{_NAME})(?:@([^/]+))?/(.+)")


@dataclass(frozen=True)
class Address:
    """A file of a repository; `revision` is a branch, a tag or a commit, "" the newest."""

    repository: str
    path: str
    revision: str = ""


def is_hub(model: Any) -> bool:
    """Whether a model is named by its place on the hub."""
    return isinstance(model, str) and model.startswith(PREFIX)


def parse(text: str) -> Address:
    """The parts of an address. Raises FileError for anything else.

    >>> parse("hf://org/repo@v1/onnx/model.onnx")
    Address(repository='org/repo', path='onnx/model.onnx', revision='v1')
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or ".." in found[3].split("/"):
        raise FileError(
            f"{printable(text)} is not an address of a model, expected hf://org/repo/onnx/model.onnx, "
            "or hf://org/repo@revision/… for a branch, tag or commit"
        )
    return Address(found[1], found[3], (found[2] or "").replace("%2F", "/"))


def library() -> Any:
    """huggingface_hub, or what to do about it."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise FileError(f"the Hugging Face hub needs huggingface_hub: {INSTALL}") from error
    return huggingface_hub


def local(text: str) -> Path:
    """The model's file in the cache, with its external weights and companions beside it; downloaded where it must be.

    Raises MissingFileError where the hub or, offline, the cache has no such file.
    """
    address = parse(text)
    path = _file(address, address.path)
    folder = address.path.rpartition("/")[0]
    for location in _external(path):
        # A name that leads out is refused before it is asked for.
        external.Folder(path).file(location)
        _file(address, f"{folder}/{location}" if folder else location)
    for name in COMPANIONS:
        for place in dict.fromkeys((folder, "")):
            _file(address, f"{place}/{name}" if place else name, needed=False)
    return path


def _file(address: Address, name: str, needed: bool = True) -> Path:
    hub = library()
    try:
        found = hub.hf_hub_download(address.repository, name, revision=address.revision or None)
        return Path(found)
    except Exception as error:  # its classes differ from version to version
        if not needed:
            return Path()
        at = f"@{address.revision}" if address.revision else ""
        place = f"hf://{address.repository}{at}/{printable(name)}"
        raise MissingFileError(f"{place}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """What huggingface_hub says, in a sentence; that nothing is in the cache is said by several classes."""
    found: BaseException | None = error
    while found is not None:
        if type(found).__name__ in ("LocalEntryNotFoundError", "OfflineModeIsEnabled"):
            return "it is not in the cache, and the hub cannot be asked (no network, or HF_HUB_OFFLINE is set)"
        found = found.__cause__ or found.__context__
    return " ".join(printable(root(error)).split())[:300] or type(error).__name__


def _external(path: Path) -> list[str]:
    """The names of the files in which a model keeps weights."""
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # whoever reads it next says what is wrong
        return []
    found = [external.place(t) for t in tensors.tensors(model) if external.is_external(t)]
    return list(dict.fromkeys(place.location for place in found))


def api() -> Any:
    """The hub's interface for writing, with the token of this machine's user."""
    return library().HfApi()


def check_push(repository: str) -> None:
    """Raise FileError where nothing could be uploaded to that name: before hours of training."""
    if not re.fullmatch(f"{_NAME}/{_NAME}", repository):
        raise FileError(f"--push {printable(repository)!r} is not a repository, expected org/repo")
    library()


def push(repository: str, files: dict[str, bytes | Path], message: str) -> str:
    """Upload files by their names in the repository, which is made, private, where it is missing; return its address.

    The first files come first: a card that is last never describes a model that is not there.
    """
    check_push(repository)
    hub = api()
    try:
        hub.create_repo(repository, private=True, exist_ok=True)
        for name, content in files.items():
            source = content if isinstance(content, bytes) else str(content)
            hub.upload_file(
                path_or_fileobj=source,
                path_in_repo=name,
                repo_id=repository,
                commit_message=message,
            )
    except Exception as error:  # of the network, of rights, of the hub
        raise FileError(f"the upload to {repository} failed: {_reason(error)}") from error
    return f"https://huggingface.co/{repository}"
