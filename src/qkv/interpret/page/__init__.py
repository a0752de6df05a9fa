"""A trace or a walk as one self-contained HTML file: steps, heat maps, arithmetic and checks."""

from typing import TYPE_CHECKING

from qkv.lazy import lazy_attributes

if TYPE_CHECKING:
    from qkv.interpret.page.page_file import mimebundle, render_page, write_page
    from qkv.interpret.page.page_sections import Section, attribution_sections
    from qkv.interpret.page.size_budget import MAX_BYTES
    from qkv.interpret.page.walk_page import render_walk_page

__all__ = [
    "MAX_BYTES",
    "Section",
    "attribution_sections",
    "mimebundle",
    "render_page",
    "render_walk_page",
    "write_page",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "qkv.interpret.page.page_file": ("mimebundle", "render_page", "write_page"),
        "qkv.interpret.page.page_sections": ("Section", "attribution_sections"),
        "qkv.interpret.page.size_budget": ("MAX_BYTES",),
        "qkv.interpret.page.walk_page": ("render_walk_page",),
    },
)
