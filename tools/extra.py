"""Print the packages of an extra of the installed onnxgrad, for pip: `python tools/extra.py test`.

Installing `.[test]` itself would build the package once more.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import requires


def packages(extra: str) -> list[str]:
    found = []
    for requirement in requires("onnxgrad") or ():
        package, _, condition = requirement.partition(";")
        if re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", condition):
            found.append(package.strip().replace(" ", ""))
    return found


if __name__ == "__main__":
    print("\n".join(packages(sys.argv[1])))
