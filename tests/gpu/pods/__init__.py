"""Pods on a card: the kit's part `pods`.

| module | |
|---|---|
| `pack` | `make gpu-pods`: what a cluster consists of, in archives |
| `machine` | what a machine must have for a node; the places of ours in it, unpacked |
| `driver` | the machine's own driver, as a node's cards |
| `scene` | the cluster, its three pods, and what is measured in them |
"""
