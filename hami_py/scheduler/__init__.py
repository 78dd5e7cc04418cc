"""The scheduler extender: which nodes a pod's cards are on, asked by kube-scheduler over HTTP.

A request's way: ``app`` reads it (``extender_api``), ``verbs`` answers it from the allocator, which
``pods``, ``nodes`` and ``quotas``, together the ``cluster``, keep like the API server's objects by
its watches; ``service`` starts them. ``binding`` writes once per pod, and ``waking`` an annotation
of one StorageClass; nothing else writes. Of several replicas the one that binds is told by
``lease``, and finds by ``takeover`` and ``look`` what those before it have bound. ``view`` asks the
same allocator for the command line; ``explanation`` has the types of its answers.
"""
