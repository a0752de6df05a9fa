"""The tour: three small models of three families, trained here, measured, opened up and proved."""

from qkv.tour.stages import FULL, QUICK, STANDARD, ProgressUpdate
from qkv.tour.tour import TourFolder, tour

__all__ = [
    "FULL",
    "QUICK",
    "STANDARD",
    "ProgressUpdate",
    "TourFolder",
    "tour",
]
