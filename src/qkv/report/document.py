"""The frame of every page: one file, no network, no script, light or dark."""

from collections.abc import Iterable
from importlib.resources import files

from qkv.report.markup import escaped

POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(job: str, title: str, verdict: str, sections: Iterable[str]) -> str:
    """The whole page; a section of nothing is left out."""
    style = (files("qkv.report") / "page.css").read_text("utf-8")
    body = "\n".join(each for each in sections if each)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escaped(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<header>
<p class="job">{escaped(job)}</p>
<h1>{escaped(title)}</h1>
<p class="verdict">{escaped(verdict)}</p>
</header>
{body}
</main>
</body>
</html>
"""
