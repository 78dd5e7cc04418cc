"""Generated: the kubelet's interfaces to a DRA driver, dra v1 and pluginregistration v1."""
