"""Binding: reserve cards for a pod, and write the assignment with the binding, in one write.

``binder`` makes that write and follows up on writes without an answer. With several replicas of
kube-scheduler, ``lease`` lets only the leader's extender bind, and ``failover`` makes sure that it
knows what the previous leader has bound; ``pod_listing`` reads the lists that this takes.
"""
