"""A trace as one HTML file that needs nothing else: steps, heat maps, arithmetic and checks."""

from qkv.interpret.page.page_file import mimebundle, page, write_page
from qkv.interpret.page.page_sections import Section

__all__ = ["Section", "mimebundle", "page", "write_page"]
