"""The scheduler extender: which nodes a pod's cards are on, asked by kube-scheduler over HTTP.

A request's way: ``app`` reads it (``wire``), ``verbs`` answers it from the allocator, which
``cluster`` and ``nodes`` keep like the cluster by the API server's watches. Only ``binding``
writes: once per pod.
"""
