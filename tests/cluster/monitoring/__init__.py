"""What Prometheus and Grafana get from us: the metrics, the rules and the dashboards.

| file | contents |
|---|---|
| ``pages`` | a page of metrics of each part, from its own code |
| ``rules`` | the rules in deploy/chart/files/rules.yaml |
| ``panels`` | the one table of what the dashboards show, in panels.yaml |
| ``grafana`` | the dashboards, from that table |
| ``reference`` | docs/metrics.md, from pages and rules |
| ``prometheus`` | a running Prometheus that scrapes a test cluster |

`make manifests` writes what is derived from them, and `make lint` compares it
(`cluster.manifests`).
"""
