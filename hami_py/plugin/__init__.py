"""The kubelet's interfaces, over gRPC: the only package that knows their messages.

| module | contains |
|---|---|
| ``api`` | generated: device plugins (v1beta1) and pod resources (v1) |
| ``service`` | the service that the kubelet calls |
| ``registration`` | serving and registering, again whenever the kubelet forgets |
| ``other_plugin`` | another device plugin for the same resource |
| ``devices`` | the devices that the kubelet is told of |
| ``allocation`` | the answer to Allocate |
| ``preference`` | which device IDs fit the assigned cards |
| ``checkpoint`` | the kubelet's record of allocated devices |
| ``pod_resources`` | the kubelet's list of pods and their devices |

Decisions are made elsewhere: ``Handlers`` in ``service`` is the interface.
"""
