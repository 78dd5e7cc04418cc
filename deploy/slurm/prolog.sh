#!/bin/sh
# Prolog of slurm.conf: the job gets a slice. If this fails, Slurm drains the node.
export PATH=/usr/local/bin:/usr/bin:/bin
[ -n "$SLURM_JOB_GPUS" ] || exit 0
exec hami machine job start "$SLURM_JOB_ID" --user "$SLURM_JOB_UID" \
    --cards "$SLURM_JOB_GPUS" --node "$SLURMD_NODENAME"
