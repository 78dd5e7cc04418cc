"""The admission webhook: checks pods and completes them before they are stored.

A review's path: ``service`` receives it, ``review`` decodes it and decides with
``hami_py.model.pods.admit``, and ``patch`` writes the decision as a JSON patch. ``certificates``
computes which certificates the webhook needs, and ``keeper`` keeps them in the cluster and in the
listener.
"""
