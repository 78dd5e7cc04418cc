"""The rules and records of a node for the cards that the scheduler has assigned to its pods.

The scheduler has assigned cards to a pod, and its containers run on these. The kubelet's device IDs
only count containers. The rules are pure functions; other modules keep state in files.

| module | contains |
|---|---|
| ``paths`` | the node's directories |
| ``devices`` | device IDs, and which container they belong to by the kubelet's record |
| ``cdi`` | the CDI device of a container, and NVIDIA's specifications |
| ``nvidia_ctk`` | NVIDIA's CDI specification, made on the node |
| ``known_cards`` | the cards that were seen on the node |
| ``decision`` | whether that container may run, and on which amounts |
| ``resizing`` | whether the limits of a running container may change |
| ``drift`` | processes on the cards that no allocation explains |
| ``ledger`` | what each container on the node has; kept on disk |
| ``rows`` | the limits of a container, as its limits page has them |
| ``slot``, ``slots`` | the directory of a container's slice; all of them |
| ``library`` | the installed preload library |
| ``mounts`` | the tmpfs that the slots are on |
| ``processes`` | the pods and the mapped files of processes, by ``/proc`` |
"""
