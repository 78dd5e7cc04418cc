"""The package's version, where it can be read without importing anything else of the package."""

VERSION = "0.1.0"
