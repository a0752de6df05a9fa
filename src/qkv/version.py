"""The version of the package, for every layer to import."""

__version__ = "0.1.0"
