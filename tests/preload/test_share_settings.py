"""Which share holds: the slice's, HAMi's variables, and what changes while a program runs.

Whether launches are metered is the question: a limited launch has a meter, and is in the account.
"""

import pytest

from hami_py._native import LimitsPage

WORK = ["kernel k m work_100us", "stream s"]
LAUNCH = ["launch cuLaunchKernel k s 1 200", "sync s"]
POLICY = "GPU_CORE_UTILIZATION_POLICY"


def is_metered(script, *, card=0):
    """Whether launches are metered now: nearly all that they take is billed, or nearly nothing.

    Nearly, because the last batch before may be billed late, and so may the last of these.
    """
    busy, used = script.busy_ns(card), script.account("used_ns", card)
    script.do(*LAUNCH)
    done = script.busy_ns(card) - busy
    assert done >= 20_000_000
    billed = (script.account("used_ns", card) - used) / done
    assert not 0.2 < billed < 0.8, f"{billed:.0%} of it was billed"
    return billed > 0.5


@pytest.mark.parametrize(
    ("share", "policy", "metered"),
    [
        ("30", "force", True),
        ("30", "FORCE", True),
        ("30", "default", True),
        ("30", None, True),
        ("30", "disable", False),
        ("30", "DISABLE", False),
        ("0", "force", False),
        ("100", "force", False),
    ],
)
@pytest.mark.parametrize("in_slice", [True, False], ids=["in a slice", "by variables alone"])
def test_hami_s_variables(launcher, gpu, tmp_path, *, share, policy, metered, in_slice):
    env = {"CUDA_DEVICE_SM_LIMIT": share, **({POLICY: policy} if policy else {})}
    if not in_slice:
        env |= {"HAMI_SLICE": "", "XDG_RUNTIME_DIR": str(tmp_path)}
    script = launcher(gpu, None, env=env)
    script.do(*WORK, *LAUNCH)
    assert ("hami-meter" in script.tasks()) is metered
    if in_slice:
        assert is_metered(script) is metered


def test_a_policy_does_not_disable_the_share_of_a_page(launcher, gpu):
    script = launcher(gpu, 30, env={POLICY: "disable", "CUDA_DEVICE_SM_LIMIT": "100"})
    script.do(*WORK)
    assert is_metered(script)


def test_a_variable_s_share_is_its_card_s(launcher, stub_server):
    gpu = stub_server("a100,a100")
    env = {"CUDA_DEVICE_SM_LIMIT_1": "30", POLICY: "force"}
    script = launcher(gpu, None, env=env)
    script.do(*WORK)
    assert not is_metered(script)
    script.do("context b 1", "module m", *WORK)
    assert is_metered(script, card=1)
    script.do("current a", "module m", *WORK)
    assert not is_metered(script)


def test_a_share_that_is_set_and_removed_while_a_program_runs(launcher, gpu):
    """And launches on: the first of a new regime is under it."""
    script = launcher(gpu, None)
    script.do(*WORK)
    page = LimitsPage.open(script.slice / "limits")
    for _ in range(3):
        for share in (None, 30, 100, 50):
            page.set_regimes(dict.fromkeys(gpu.uuids(), (share, "hard", "normal")))
            assert is_metered(script) is (share in (30, 50))


def test_removing_a_share_releases_waiting_threads(launcher, gpu):
    """With a share of 1 the second of two long kernels would wait for seconds."""
    script = launcher(gpu, 1)
    script.do("kernel l m long_200000us", "stream s", "launch cuLaunchKernel l s", "sync s")
    script.do("start t launch cuLaunchKernel l s")
    script.waits()
    page = LimitsPage.open(script.slice / "limits")
    page.set_regimes(dict.fromkeys(gpu.uuids(), (None, "hard", "normal")))
    script.do("finish t", "sync s")
    assert script.account("debt_ns") > 0, "it would have had to wait for much longer"
