"""Mutations: of messages by reflection over their fields, of bytes by cutting, flipping and copying."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    127,
    255,
    1 << 16,
    1 << 31,
    (1 << 31) - 1,
    1 << 40,
    (1 << 62),
    -(1 << 62),
)
REALS = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
WORDS = (
    "",
    "x",
    "y",
    "w",
    "../x",
    "Conv",
    "MatMul",
    "Loop",
    "If",
    "\x1b[2J",
    "a" * 300,
    "com.microsoft",
)


def mutate_message(message: Any, rng: random.Random, times: int | None = None) -> None:
    """Change one to four fields of a protobuf message, wherever in it."""
    for _ in range(times or rng.choice((1, 1, 2, 4))):
        places = list(_places(message))
        if places:
            _change(*rng.choice(places), rng, places)


def _places(message: Any) -> Iterator[tuple[Any, Any]]:
    """Every field that is set, of the message and of those inside it."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from _places(inner)


def _change(message: Any, field: Any, rng: random.Random, places: list) -> None:
    try:
        if field.is_repeated:
            _change_list(getattr(message, field.name), field, rng, places)
        elif rng.random() < 0.1:
            message.ClearField(field.name)
        elif field.type != field.TYPE_MESSAGE:
            old = getattr(message, field.name)
            setattr(message, field.name, _other(field, old, rng, places))
    except (ValueError, TypeError, OverflowError):
        pass  # a number that the field does not hold


def _change_list(items: Any, field: Any, rng: random.Random, places: list) -> None:
    choice, at = rng.randrange(4), rng.randrange(len(items))
    if choice == 0:
        del items[at]
    elif choice == 1 and field.type == field.TYPE_MESSAGE:
        items.add().CopyFrom(items[at])
    elif choice == 1:
        items.append(items[at])
    elif field.type != field.TYPE_MESSAGE:
        items[at] = _other(field, items[at], rng, places)
    elif len(items) > 1:
        other = rng.randrange(len(items))
        kept = type(items[at])()
        kept.CopyFrom(items[at])
        items[at].CopyFrom(items[other])
        items[other].CopyFrom(kept)


def _other(field: Any, old: Any, rng: random.Random, places: list) -> Any:
    if field.type == field.TYPE_STRING:
        return rng.choice((*WORDS, *_texts(places, rng)))
    if field.type == field.TYPE_BYTES:
        return mutate_bytes(old, rng)
    if isinstance(old, float):
        return rng.choice(REALS)
    if field.type == field.TYPE_ENUM:
        return rng.choice((0, 1, 2, 6, 7, 10, 11, 16, 99))
    return rng.choice((*NUMBERS, old + 1, old - 1, old * 2))


def _texts(places: list, rng: random.Random) -> list[str]:
    """Some names that the message has already: a wrong edge is worse than an unknown one."""
    found = []
    for message, field in rng.sample(places, min(12, len(places))):
        if field.type == field.TYPE_STRING:
            value = getattr(message, field.name)
            found += list(value) if field.is_repeated else [value]
    return found


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Cut, flip, copy, insert or overwrite."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data) + 1)
        size = rng.choice((1, 1, 4, 16, 100))
        choice = rng.randrange(5)
        if choice == 0:
            del data[at : at + size]
        elif choice == 1 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif choice == 2:
            data[at:at] = data[: rng.randrange(len(data) + 1)][-size:]
        elif choice == 3:
            data[at : at + size] = rng.randbytes(size)
        elif data:
            del data[at:]
    return bytes(data)


VALUES = (None, True, 0, -1, 1.5, 1 << 62, 1 << 200, 1e308, float("nan"), float("inf"), "", "x", "../x", "\x1b[2J",
          "LORA", "F64", "BF16", "F8_E4M3", "BOOL", [], [0], [-1], [1 << 62], {}, {"": {}}, [[[]]])  # fmt: skip


def mutate_json(text: bytes, rng: random.Random) -> bytes:
    """Change one to four values or keys of a JSON text, wherever in it."""
    whole = [json.loads(text)]
    for _ in range(rng.choice((1, 1, 2, 4))):
        holder, key = rng.choice(list(_json_places(whole)))
        choice = rng.randrange(6)
        if choice == 0 and holder is not whole:
            del holder[key]
        elif choice == 1 and isinstance(holder, dict):
            holder[rng.choice(("", "x", key + ".", "a" * 300))] = holder.pop(key)
        elif choice == 2:
            other, at = rng.choice(list(_json_places(whole)))
            holder[key] = json.loads(json.dumps(other[at]))
        elif type(holder[key]) in (int, float) and rng.random() < 0.5:
            holder[key] += rng.choice((1, -1, 8, 1 << 40))
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))  # a change of it is for this text alone
    return json.dumps(whole[0]).encode()


def _json_places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _json_places(value[key])
