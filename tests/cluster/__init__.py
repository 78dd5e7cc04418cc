"""A real Kubernetes on this machine, for tests: etcd, API server, scheduler; a node if wanted."""
