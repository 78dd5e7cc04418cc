"""The commands of the Kubernetes side.

They import their dependencies when they run, so that `--help` works without them.
"""
