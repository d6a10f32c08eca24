"""Language data: what is learned, how it is padded, shifted, cut and packed; mistakes named by their line."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from onnxgrad.data.language import (
    Example,
    Language,
    Tokenizer,
    generate,
    read_examples,
    read_prompts,
)
from onnxgrad.demo import language
from onnxgrad.errors import DataError

INPUTS = ("input_ids", "attention_mask")


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_text(language.tokenizer())
    return Tokenizer(tmp_path)


def written(tmp_path, *records) -> str:
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return str(path)


def learned(tokenizer, example: Example) -> str:
    ids = [t for t, used in zip(example.tokens, example.learned, strict=True) if used]
    return tokenizer.decode([t for t in ids if t != tokenizer.end])


def test_what_is_learned_of_each_form(tmp_path, tokenizer):
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    path = written(
        tmp_path, {"text": "abc"}, {"prompt": "one ", "completion": "two"}, {"messages": chat}
    )
    text, pair, talk = read_examples(path, tokenizer)
    assert learned(tokenizer, text) == "abc"
    assert learned(tokenizer, pair) == "two"
    assert learned(tokenizer, talk) == "hello\n"
    assert text.tokens[-1] == pair.tokens[-1] == talk.tokens[-1] == tokenizer.end
    assert tokenizer.decode(talk.tokens[:-1]) == "user: hi\nassistant: hello\n"


def test_targets_are_the_next_tokens_that_are_learned():
    rows = [Example([5, 6, 7, 8], [False, False, True, True]), Example([9, 4], [True, True])]
    data = Language(rows, INPUTS, filler=0, shuffle=False, batch_size=2)
    (batch,) = data.epoch(0)
    assert batch.arrays["input_ids"][:, :4].tolist() == [[5, 6, 7, 8], [9, 4, 0, 0]]
    assert batch.arrays["attention_mask"].sum(1).tolist() == [4, 2]
    assert batch.arrays["target"][:, :4].tolist() == [[-100, 7, 8, -100], [4, -100, -100, -100]]
    assert (batch.arrays["target"][:, 4:] == -100).all()
    assert batch.arrays["input_ids"].shape == (2, 8), "widths are multiples of 8"


def test_long_rows_are_cut_and_said():
    rows = [Example(list(range(20)), [True] * 20), Example([1, 2], [True] * 2)]
    rows.append(Example(list(range(20)), [False] * 15 + [True] * 5))
    data = Language(rows, ("input_ids",), length=8)
    assert [str(note) for note in data.notes] == [
        "2 of 3 examples are cut at 8 tokens",
        "1 examples are left out: what is learned lies beyond the cut",
    ]
    assert [len(r.tokens) for r in data.laid] == [8, 2]


def test_packing_pads_nothing_and_learns_no_seam():
    rows = [Example([1, 2, 3], [True] * 3), Example([4, 5, 6, 7, 8], [True] * 5)]
    data = Language(rows, ("input_ids",), length=8, pack=True, shuffle=False)
    (batch,) = data.epoch(0)
    assert batch.arrays["input_ids"].tolist() == [[1, 2, 3, 4, 5, 6, 7, 8]]
    assert batch.arrays["target"].tolist() == [[2, 3, -100, 5, 6, 7, 8, -100]]


def test_an_epoch_has_its_own_order_and_can_begin_in_the_middle():
    rows = [Example([i, i + 1], [True, True]) for i in range(10)]
    data = Language(rows, ("input_ids",), batch_size=3, seed=4)
    first = [b.arrays["input_ids"][:, 0].tolist() for b in data.epoch(0)]
    assert first == [b.arrays["input_ids"][:, 0].tolist() for b in data.epoch(0)]
    assert first != [b.arrays["input_ids"][:, 0].tolist() for b in data.epoch(1)]
    assert [b.arrays["input_ids"][:, 0].tolist() for b in data.epoch(0, start=2)] == first[2:]


BAD = [
    ({"txt": "a"}, "line 1: expected 'text', 'prompt' and 'completion', or 'messages'"),
    ({"prompt": "a", "completion": 3}, "line 1: expected text, got int"),
    ({"messages": [{"role": "user"}]}, "line 1: a message has no 'role' and 'content'"),
    (
        {"messages": [{"role": "user", "content": "hi"}]},
        "line 1: there is nothing to learn in it",
    ),
]


@pytest.mark.parametrize(("record", "message"), BAD, ids=[m for _, m in BAD])
def test_a_mistake_is_named_by_its_line(tmp_path, tokenizer, record, message):
    with pytest.raises(DataError) as caught:
        read_examples(written(tmp_path, record), tokenizer)
    assert str(caught.value).endswith(message)


def test_what_is_no_tokenizer_or_no_language_model_is_refused(tmp_path):
    with pytest.raises(DataError, match="lies beside most models"):
        Tokenizer(tmp_path / "nothing")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="is not a tokenizer"):
        Tokenizer(tmp_path)
    with pytest.raises(DataError, match="the inputs of the model are 'pixels'"):
        Language([Example([1, 2], [True, True])], ("pixels",))


def test_generation_takes_the_likeliest_token_until_the_end(tokenizer):
    answer = [*tokenizer.encode("ok"), tokenizer.end]

    def logits(arrays):
        size = int(arrays["attention_mask"].sum())
        found = np.zeros((1, arrays["input_ids"].shape[1], len(language.WORDS)))
        found[0, size - 1, answer[size - 2]] = 1
        return found

    assert generate(logits, tokenizer, "hi", INPUTS) == "ok"


TALK = [
    {"role": "system", "content": "be short"}, {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"}, {"role": "user", "content": "bye"},
    {"role": "assistant", "content": "ciao"},
]  # fmt: skip
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] | trim }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def with_template(folder, template) -> Tokenizer:
    settings = {"chat_template": template, "eos_token": {"content": "<eos>"}, "bos_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return Tokenizer(folder)


def test_chats_are_written_by_the_models_own_template(tmp_path, tokenizer):
    pytest.importorskip("jinja2")
    tokenizer = with_template(tmp_path, TEMPLATE)
    (example,) = read_examples(written(tmp_path, {"messages": TALK}), tokenizer)
    ids = [t for t, used in zip(example.tokens, example.learned, strict=True) if used]
    assert tokenizer.decode([t for t in ids if t != tokenizer.end]) == "hello\nciao\n"
    assert ids.count(tokenizer.end) == 2, "the end of an answer is learned"
    assert read_prompts(tmp_path / "d.jsonl", tokenizer) == [
        "system: be short<eos>\nuser: hi<eos>\nassistant: hello<eos>\nuser: bye<eos>\nassistant: "
    ]


TEMPLATES = [
    ("{% for m in messages %}", "is not a template"),
    ("{{ raise_exception('no system') }}", "fails: no system"),
    ("{{ messages[0].__class__.__mro__ }}", "fails: access to attribute '__class__'"),
    (
        "{% for m in messages %}{{ loop.length }}{{ m['content'] }}{% endfor %}",
        "writes earlier messages anew",
    ),
]


@pytest.mark.parametrize(("template", "message"), TEMPLATES, ids=[m for _, m in TEMPLATES])
def test_a_template_that_cannot_be_used_is_refused(tmp_path, tokenizer, template, message):
    pytest.importorskip("jinja2")
    tokenizer = with_template(tmp_path, template)
    with pytest.raises(DataError, match=message):
        read_examples(written(tmp_path, {"messages": TALK}), tokenizer)
