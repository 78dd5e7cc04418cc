"""A real Kubernetes on this machine, for tests: etcd, API server, scheduler; a node if wanted.

| family | modules |
|---|---|
| clusters | `control_plane`, `pool` of them; `node`, `node_gpu`; `whole`; fixtures: `conftest` |
| what clusters consist of | `binaries`, `servers`, `server_flags`, `certificates`, `images`, |
| | `image_*`, `node_init`, `toolkit`, `leftovers` |
| our programs in them | `deployed`, `extended`, `webhooks`, `interfaces` |
| pods | `objects`, `gpu_pods`, `placing`, `limited_pods`, `crowd`, `load`, `attacks`, `claims`, |
| | `claimed_pods` |
| requests | `api`, `kubectl`, `waiting` |
| oracles | `card_owners`, `card_watch`, `node_remains`, `audit_log` |
| faults | `node_faults`, `failing` |
| stand-ins that record | `device_plugin`, `claims_driver`, `extender`, `admission`, `recorder`, |
| | `recordings` |
| demo | `demo` |

| tests | of |
|---|---|
| `test_findings_*` | Kubernetes' own behaviour: findings.md |
| `test_scheduler`, `test_placing_*`, `test_queries*` | the extender, on nodes made by hand |
| `test_failing_*` | the extender while something fails |
| `test_webhook*`, `test_policies` | admission |
| `test_deploy*` | deploy/ |
| `test_examples`, `test_documented_steps` | the examples, and the commands of the docs |
| `test_node_*`, `test_limited_pods`, `test_crowd` | a node with its agent |
| `test_claims*` | the same on a node whose cards others allocate |
| `test_migration` | a node that had HAMi |
| `test_binaries`, `test_pool`, `test_interfaces`, `test_leaves_nothing` | these helpers |
"""
