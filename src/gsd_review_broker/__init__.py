"""GSD Tandem's review broker."""

__version__ = "0.1.0"
