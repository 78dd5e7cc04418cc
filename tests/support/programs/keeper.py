"""Process 1 of a PID namespace: starts, signals and waits for programs as its input says.

A line of input is a JSON object, and so is the line of output that answers it.
"""

import json
import os
import subprocess
import sys

programs: dict[int, subprocess.Popen] = {}
for line in sys.stdin:
    request = json.loads(line)
    if "command" in request:
        env = {"PATH": os.environ["PATH"], **request["env"]}
        started = subprocess.Popen(
            request["command"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        programs[started.pid] = started
        answer = started.pid
    elif "signal" in request:
        answer = programs[request["pid"]].send_signal(request["signal"])
    else:
        program = programs.pop(request["wait"])
        output, _ = program.communicate()
        answer = program.returncode, output
    print(json.dumps(answer), flush=True)
