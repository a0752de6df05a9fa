"""A trace as one HTML file that needs nothing else: steps, heat maps, arithmetic and checks."""

from qkv.explain.page.notebook import mimebundle
from qkv.explain.page.section import Section
from qkv.explain.page.write import page, write_page

__all__ = ["Section", "mimebundle", "page", "write_page"]
