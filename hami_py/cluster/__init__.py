"""The cluster as the allocator sees it.

The scheduler extender follows nodes, pods, quotas and disruption budgets on the API server. A sink
per kind (``nodes``, ``pods``, ``quotas``, ``budgets``) takes their changes and passes them to the
allocator; ``shared`` is what the sinks have in common, and ``state`` puts them together.
``waiting`` keeps the requests of pods that are not bound yet, and ``requeue`` lets kube-scheduler
try refused pods again.

``view`` asks the same allocator about a cluster at one moment, for the command line and the
overview; ``explanation`` has the types of its answers.
"""
