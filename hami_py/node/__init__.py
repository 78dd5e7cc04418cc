"""The parts of a machine whose cards several owners share, and a node's rules for its pods.

Two services use them: the node agent and ``hami machine``. ``devices``, ``decision``, ``amounts``,
``resizing`` and ``nvidia_ctk`` are for pods only. The scheduler has assigned cards to a pod, and
its containers run on these. The kubelet's device IDs only count containers. The rules are pure
functions; other modules keep state in files, or watch the machine.

| module | contains |
|---|---|
| ``paths`` | the node's directories |
| ``devices`` | device IDs, and which container they belong to by the kubelet's record |
| ``cdi`` | the CDI device of a container, and NVIDIA's specifications |
| ``nvidia_ctk`` | NVIDIA's CDI specification, made on the node |
| ``cards`` | the cards that answer, and those that were seen on the node |
| ``decision`` | whether that container may run, and on which amounts |
| ``amounts`` | the parts of cards that other allocators have given a container |
| ``resizing`` | whether the limits of a running container may change |
| ``observer``, ``drift`` | looks for processes on the cards that no allocation explains |
| ``ledger`` | what each slice on the node has; kept on disk |
| ``levels`` | what enforces the limits of a container, by the mode of its node |
| ``rows`` | the limits of a container, as its limits page has them |
| ``slot``, ``slots`` | the directory of a container's slice; all of them |
| ``library`` | the installed preload library |
| ``mounts`` | the tmpfs that the slots are on |
| ``coordinator`` | the coordinator's process |
| ``rounds`` | steps that are taken again and again |
| ``node_lock`` | one agent, or ``hami machine``, has the cards at a time |
| ``processes`` | the pods and the mapped files of processes, by ``/proc`` |
"""
