"""The node agent: ``hami node``, one process on each node with cards.

It publishes the node's cards, answers the kubelet, and gives each container with cards a slot, in
which its limits are. It schedules the time of the cards through a coordinator, and reports when the
driver has freed the memory of dead processes.

| module | contains |
|---|---|
| ``settings`` | how the agent runs |
| ``pods`` | the node's pods, followed |
| ``node`` | the node's own object, followed |
| ``state`` | what is known of the node |
| ``preparation`` | what the kubelet is answered; a container is prepared before it starts |
| ``assigned``, ``others`` | the cards that our scheduler has assigned; those of others |
| ``owner`` | which of the two allocates the cards of the node |
| ``resize`` | new limits for running pods |
| ``publication`` | the annotation and the resources of the node |
| ``reports`` | events about processes on the cards that no allocation explains |
| ``figures`` | what the node reports to Prometheus |
| ``starts`` | how long pods take to start |
| ``release`` | what ended containers had is free again |
| ``active`` | all of these, while the agent is active |
| ``service`` | the agent as a service |
| ``cleanup`` | removing what agents have left on a node |
"""
