"""The rules and records of a node for the cards that the scheduler has assigned to its pods.

The kubelet picks a container's devices, the scheduler has assigned cards to its pod, and the
container must run on the cards that both name. The rules are pure functions; two modules keep state
in files.

| module | contains |
|---|---|
| ``paths`` | the node's directories |
| ``devices`` | device IDs, and which container they belong to by the kubelet's record |
| ``nvidia_ctk`` | NVIDIA's CDI specification, made on the node |
| ``known_cards`` | the cards that were seen on the node |
| ``decision`` | whether that container may run, and on which amounts |
| ``resizing`` | whether the limits of a running container may change |
| ``drift`` | processes on the cards that no allocation explains |
| ``ledger`` | what each container on the node has; kept on disk |
| ``rows`` | the limits of a container, as its limits page has them |
| ``slot``, ``slots`` | the directory of a container's slice; all of them |
| ``library`` | the installed preload library |
"""
