#!/bin/sh
# TaskProlog of slurm.conf: the job's programs load the library of its slice. The job may have been
# submitted in another slice, whose variables it has; other libraries stay.
slot=/run/hami/slices/job-$SLURM_JOB_ID
others=$(printf %s "$LD_PRELOAD" | tr ': ' '[\n*]' | grep -v -e '/libvgpu\.so$' -e '^$' | paste -s -d : -)
echo "unset HAMI_SLICE"
if [ -d "$slot" ]; then
    echo "export LD_PRELOAD=$slot/libvgpu.so${others:+:$others}"
elif [ "$others" != "$LD_PRELOAD" ]; then
    echo "export LD_PRELOAD=$others"
fi
