"""MOTET_KERNEL forces a kernel, or says why not: never a silent fallback."""
from conftest import refused, run


def test_doctor_names_the_kernels():
    done = run("doctor")
    assert done.returncode == 0, done.stderr
    assert "fused, sdpa, blocked" in done.stdout
    assert "mixed heads run       fused" in done.stdout


def test_a_forced_kernel_runs_everything_it_can():
    done = run("doctor", MOTET_KERNEL="blocked")
    assert done.returncode == 0, done.stderr
    assert "sdpa (" not in done.stdout


def test_a_forced_kernel_that_cannot_run_is_an_error():
    assert refused(1, "doctor", MOTET_KERNEL="sdpa") == "motet: MOTET_KERNEL=sdpa cannot run this problem: heads are mixed"


def test_an_unknown_kernel_is_an_error():
    assert refused(1, "doctor", MOTET_KERNEL="fast") == "motet: MOTET_KERNEL=fast is not a kernel; have fused, sdpa, blocked"


def test_an_unknown_variable_of_ours_is_an_error():
    assert "MOTET_KERNEL" in refused(2, "doctor", MOTET_KERNELS="blocked")
