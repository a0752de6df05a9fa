"""A trace as one self-contained HTML file: steps, heat maps, arithmetic and checks."""

from qkv.interpret.page.page_file import mimebundle, render_page, write_page
from qkv.interpret.page.page_sections import Section, attribution_sections
from qkv.interpret.page.size_budget import MAX_BYTES

__all__ = [
    "MAX_BYTES",
    "Section",
    "attribution_sections",
    "mimebundle",
    "render_page",
    "write_page",
]
