"""nvitop and gpustat: monitors that read NVML; the total that each shows for the first card."""

import json
import sys

if sys.argv[1] == "gpustat":
    import gpustat

    print(json.dumps({"total": gpustat.new_query().gpus[0].memory_total << 20}))
else:
    from nvitop import Device

    print(json.dumps({"total": Device(0).memory_total()}))
