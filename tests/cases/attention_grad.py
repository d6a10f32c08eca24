from cases.attention import gradient_cases
from cases.case import Case

_ALL = list(gradient_cases())


def _only(title, *outputs):
    """A case of the table that asks for some outputs."""
    case = next(c for c in _ALL if c.title == title)
    new = f"{title}: {', '.join(outputs)} only"
    return Case(new, **case.samples, **case.attributes, outputs=outputs)


CASES = [
    *_ALL,
    _only("several blocks of keys and queries", "dQ"),
    _only("several blocks of keys and queries", "dQ", "dV"),
    _only("a mask of scores", "dQ", "dK", "dV"),
]
