"""The tour as one page: no network, no script, nothing beside it needed."""

from qkv.tour.page.page import page

__all__ = ["page"]
