"""What the pages share: one file each, no script, nothing from the network; text of the user is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from onnxgrad.charts import STYLE as CHARTS

# The browser itself refuses scripts and addresses, should a name ever get past the escaping.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

STYLE = """
:root{--ink:#1f2328;--dim:#59636e;--page:#fff;--line:#d1d9e0;--soft:#f6f8fa;--blue:#2a78d6}
:root{--good:42,157,92;--bad:209,73,91}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9198a1;--page:#0d1117;--line:#30363d;--soft:#161b22}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}
body{color:var(--ink);background:var(--page)}a{color:var(--blue)}
h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2.2rem 0 .7rem}
h2{border-bottom:1px solid var(--line);padding-bottom:.2rem}
table{border-collapse:collapse}td,th{padding:.15rem .9rem .15rem 0;text-align:left;vertical-align:top}
td{overflow-wrap:break-word}tbody tr:hover td{background:var(--soft)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
th{font-weight:600;color:var(--dim)}.dim{color:var(--dim)}.best{font-weight:700}
.wide{overflow-x:auto}.charts{display:flex;flex-wrap:wrap;gap:1.2rem}.chart{max-width:100%;height:auto}
.tiles{display:flex;flex-wrap:wrap;gap:.8rem;margin-top:1rem}
.tile{border:1px solid var(--line);border-radius:8px;padding:.5rem .9rem;min-width:9rem}
.tile b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}.tile span{color:var(--dim);font-size:.85rem}
.bar{height:.7rem;margin-top:.45rem;background:var(--blue);border-radius:2px}
.matrix td,.matrix th{padding:0;text-align:center;vertical-align:middle;font-weight:400}
.matrix td{width:2.4rem;height:2rem;min-width:2.4rem;border:1px solid var(--page)}
.matrix thead th{vertical-align:bottom;height:6.5rem;padding-bottom:.3rem}td:first-child{white-space:nowrap}
.matrix thead th span{writing-mode:vertical-rl;transform:rotate(180deg)}
.matrix th span{display:inline-block;max-width:12rem;max-height:6.5rem}
.matrix th span{vertical-align:middle;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.matrix tbody th{text-align:right;padding-right:.5rem}
.small td{width:.85rem;min-width:.85rem;height:.85rem;font-size:0;border-width:0 1px 1px 0}
.small th{font-size:.68rem;line-height:1}
.examples{display:grid;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr));gap:.8rem}
.example{border:1px solid var(--line);border-radius:8px;padding:.5rem;overflow-wrap:anywhere;font-size:.85rem}
.example img{width:100%;aspect-ratio:1;object-fit:contain;image-rendering:pixelated}
.example img{background:var(--soft);border-radius:4px}
details summary{cursor:pointer;color:var(--dim)}code{font:13px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
"""


def document(title: str, parts: Iterable[str]) -> str:
    """A whole page."""
    head = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        "<meta name='viewport' content='width=device-width'><meta name='color-scheme' content='light dark'>"
        f"<title>{escape(title)}</title><style>{STYLE}{CHARTS}</style></head><body>"
    )
    return "\n".join([head, f"<h1>{escape(title)}</h1>", *filter(None, parts)]) + "</body></html>\n"


def section(title: str, *bodies: str) -> str:
    """A heading and what stands under it; nothing where there is nothing."""
    inside = "".join(bodies)
    return f"<h2>{escape(title)}</h2>{inside}" if inside else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: set[int]) -> str:
    """Cells are HTML already; headings are text."""

    def line(tag: str, cells: Iterable[str]) -> str:
        made = (
            f"<{tag}{' class=n' if i in numbers else ''}>{cell}</{tag}>"
            for i, cell in enumerate(cells)
        )
        return "<tr>" + "".join(made) + "</tr>"

    top = f"<thead>{line('th', map(escape, head))}</thead>" if head else ""
    body = "".join(line("td", row) for row in rows)
    return f"<div class='wide'><table>{top}<tbody>{body}</tbody></table></div>"


def tiles(numbers: Iterable[tuple[str, str, str]]) -> str:
    """Large numbers side by side: name, number, a word below."""
    made = (
        f"<div class='tile'><span>{escape(name)}</span><b>{escape(number)}</b><span>{escape(below)}</span></div>"
        for name, number, below in numbers
    )
    return f"<div class='tiles'>{''.join(made)}</div>"
