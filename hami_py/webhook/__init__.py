"""Admission of pods: what they ask for is judged and completed before anything is stored.

A review's way: ``app`` reads it (``review``), ``hami_py.model.pods.admit`` decides, ``patch``
writes the decision as a JSON patch, and ``late`` looks what other webhooks have made of it.
``certificates`` and ``keeper`` see to it that the API server trusts us.
"""
