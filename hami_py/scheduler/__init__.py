"""The scheduler extender: finds nodes with cards for a pod, called by kube-scheduler over HTTP.

A request's path: ``routes`` decodes it (``extender_api`` has its types), ``verbs`` answers it from
the allocator, and ``hami_py.cluster`` keeps the allocator up to date by watches of the API server.
``holds`` keeps cards for a pod between scoring and binding, ``preemption`` chooses victims, and
``binding`` makes the one write per pod. ``service`` starts all of it with ``settings``, and
``metrics`` reports it to Prometheus.
"""
