"""Templates of chats from strangers: none of them computes for ever, or reaches more than the messages."""

from __future__ import annotations

import sys

import pytest

from onnxgrad.data.chat import Chat
from onnxgrad.errors import DataError

pytest.importorskip("jinja2")
TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
LOOP = "{% for i in range(99999) %}"


class Words:
    """As much of a tokenizer as a template needs."""

    def __init__(self, folder):
        self.path, self.end = folder / "tokenizer.json", None

    def has(self, word: str) -> bool:
        return False


def written(folder, template: str) -> list:
    import json

    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return Chat(Words(folder)).parts(TALK, "line 1")


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (f"{LOOP}{LOOP}{{% endfor %}}{{% endfor %}}", "runs more than 1,000,000 lines"),
        ("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}", "fails"),
        ("{{ 10 ** 10 ** 10 }}", "too large"),
        ("{{ 9999999 ** 2 }}", "too large"),
        ("{{ 'x' * 1000000000000 }}", "too large"),
        ("{{ 2000000 * 'x' }}", "too large"),
        ("{{ (messages * 999999)[0] }}", "too large"),
        ("{{ range(10 ** 9) }}", "fails"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "is not a template"),
        ("{{ messages.append(1) }}", "fails"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "fails"),
        ("{{ raise_exception.__globals__['sys'] }}", "fails"),
        ("{{ self.__init__.__globals__ }}", "fails"),
        ("{% include '/etc/passwd' %}", "fails"),
    ],
)
def test_a_hostile_template_is_refused(template, says, tmp_path):
    before = sys.gettrace()
    with pytest.raises(DataError, match=says):
        written(tmp_path, template)
    assert sys.gettrace() is before


GROWING = [
    "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(40) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "{% set s = 'a' * 1000000 %}{% for i in range(90000) %}{{ s }}{% endfor %}",
    "{% set s = 'a' * 1000000 %}{{ s.join(s) }}",
    "{% set s = 'a' * 1000000 %}{{ s|replace('a', s) }}",
    "{{ 'a'|center(10000000000) }}",
    "{{ '%010000000000d' % 1 }}",
    "{{ '{:10000000000}'.format(1) }}",
]


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems do not bound the memory of a process"
)
@pytest.mark.parametrize("template", GROWING)
def test_a_template_that_grows_is_ended(template, tmp_path):
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(DataError, match="fails: it takes more than 128 MiB of memory"):
        written(tmp_path, template)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_an_honest_template_computes(tmp_path):
    template = (
        "{{ '=' * (2 ** 3) }}{% for m in messages %}{{ m.role * 2 }} {{ m.content }}{% endfor %}"
    )
    assert written(tmp_path, template) == [
        ("========useruser hi", False),
        ("assistantassistant hello", True),
    ]
