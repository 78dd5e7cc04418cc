"""A machine whose cards its users share, without Kubernetes: ``hami machine``.

| module | contains |
|---|---|
| ``policy``, ``users`` | who may use which cards, and how much of each; the machine's users |
| ``rules`` | what a slice gets, within what the policy leaves its user |
| ``register`` | the slices: made, joined, changed and ended |
| ``default_slices`` | the slices of programs that were started in none |
| ``slice_slots`` | their slots, which their user may enter |
| ``containers`` | kept slices as devices of containers |
| ``slurm`` | what a job of Slurm has, and which jobs there are |
| ``requests`` | what users may ask for, and the answers |
| ``overview`` | the slices with their use and processes, for those who may see them |
| ``usage`` | what each slice and user has used, on disk |
| ``metrics`` | the same for Prometheus |
| ``listener`` | the socket: one packet for each request |
| ``service`` | all of these, in their threads |
| ``preload``, ``installation`` | limits for all programs; the unit for systemd |
"""
