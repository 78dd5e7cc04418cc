"""The package's version, readable without importing the rest of the package."""

VERSION = "0.1.0"
