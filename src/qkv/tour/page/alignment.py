"""Which source word each word of a translation looked at, as a matrix with its numbers."""

from qkv.explain.why.translation_reason import TargetWord, TranslationReason
from qkv.explain.why.wording import seen
from qkv.report.markup import escaped, scrolling
from qkv.tour.looks import Rendering


def alignment(rendering: Rendering) -> str:
    """A row for each target word; the word it depends on most, by hiding, is framed."""
    reason = rendering.reason
    title = f"{rendering.pair.source} → {reason.target}"
    head = "".join(f'<th scope="col">{escaped(seen(s.word.text))}</th>' for s in reason.sources)
    rows = "\n".join(_row(word) for word in reason.targets)
    wrong = "" if rendering.right else f"It should be: {rendering.pair.target} "
    table = (
        f'<table class="matrix looks">\n<caption>{escaped(title)}</caption>\n'
        f'<thead><tr><th scope="col">word ↓ looks at →</th>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>"
    )
    return f'{scrolling(title, table)}\n<p class="note">{escaped(wrong + _trust(reason))}</p>'


def _row(word: TargetWord) -> str:
    cells = "".join(
        f'<td{" class=depends" if at == word.moved_by else ""} style="--share:{share:.3f}">'
        f"{_figure(share)}{'*' if at == word.moved_by else ''}</td>"
        for at, share in enumerate(word.attention)
    )
    return f'<tr><th scope="row">{escaped(seen(word.word.text))}</th>{cells}</tr>'


def _figure(share: float) -> str:
    return f"{share:.2f}".lstrip("0") if share >= 0.005 else ""


def _trust(reason: TranslationReason) -> str:
    said = f"Attention of layer {reason.layer}: {reason.faithfulness['attention'].trust.said}."
    if reason.agreement is None:
        return said
    return f"{said} It and hiding words (*) name the same word for {reason.agreement:.0%}."
