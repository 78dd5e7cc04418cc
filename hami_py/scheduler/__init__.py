"""The scheduler extender: which nodes a pod's cards are on, asked by kube-scheduler over HTTP.

A request's way: ``app`` reads it (``wire``), ``verbs`` answers it from the allocator, which
``cluster`` (pods), ``nodes`` and ``quotas`` keep like the cluster by the API server's watches;
``service`` starts them. ``binding`` writes once per pod, and ``waking`` an annotation of one
StorageClass; nothing else writes. ``view`` asks the same allocator for the command line.
"""
