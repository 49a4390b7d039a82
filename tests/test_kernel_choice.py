"""MOTET_KERNEL forces a kernel, or says why not: never a silent fallback."""
import re

from conftest import TINY, refused, run


def test_doctor_names_the_kernels():
    done = run("doctor")
    assert done.returncode == 0, done.stderr
    rows = dict(line.split(maxsplit=3)[2:] for line in done.stdout.splitlines() if line.startswith("kernels of "))
    assert rows["attention"] == "flash, cuda, fused_amx, fused, sdpa, blocked" and rows["linear"] == "cuda, rows, tiles, torch"
    assert rows["rms_norm"] == rows["rotate"] == rows["silu_times"] == rows["dcmha_maps"] == "cuda, rows, torch"
    assert len(rows) == 11 and rows["dropout"] == "counter, torch"
    assert rows["write_rows"] == "bytes, torch" and rows["token_loss"] == "cuda, torch"
    assert [line.split()[3] for line in done.stdout.splitlines() if line.startswith("mixed heads run")] == ["fused"]


def test_a_forced_kernel_runs_everything_it_can():
    done = run("doctor", MOTET_KERNEL="blocked")
    assert done.returncode == 0, done.stderr
    assert "sdpa (" not in done.stdout


def test_a_forced_kernel_that_cannot_run_is_an_error(tmp_path):
    done = run("train", *TINY, "--mechanism", "dcmha", "--out", tmp_path / "run", MOTET_KERNEL="sdpa")
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == "motet: MOTET_KERNEL=sdpa cannot run this problem: heads are mixed"


def test_an_unknown_kernel_is_an_error():
    known = "known: flash, cuda, fused_amx, fused, sdpa, blocked"
    assert refused(2, "doctor", MOTET_KERNEL="zip") == f"motet: MOTET_KERNEL: unknown kernel of attention 'zip': {known}"
    assert "'linaer': nearest is 'linear'" in refused(2, "doctor", MOTET_KERNEL="linaer=torch")
    assert "kernel of rms_norm 'row': nearest is 'rows'" in refused(2, "doctor", MOTET_KERNEL="linear=torch,rms_norm=row")


def test_every_function_has_kernels_that_can_be_named(model):
    """What runs changes, the numbers do not beyond rounding; what cannot run says so."""
    lines = ["generate", "-m", model, "-p", "the ", "-n", "6", "--temp", "0"]
    plain = run(*lines)
    torch = ",".join(f"{name}=torch" for name in ("linear", "rms_norm", "rotate", "silu_times", "gelu", "dcmha_maps", "write_rows"))
    assert plain.returncode == 0 and run(*lines, MOTET_KERNEL=f"blocked,{torch}").stdout == plain.stdout
    assert run(*lines, MOTET_KERNEL="linear=rows,rms_norm=rows").stdout == plain.stdout
    training = refused(1, "train", *TINY, "--out", model.parent / "forced", MOTET_KERNEL="rms_norm=rows")
    assert training == "motet: MOTET_KERNEL=rms_norm=rows cannot run this problem: gradients are on"


def test_debug_tells_once_which_kernel_ran_and_who_wanted_it(model):
    """Forwards of a prompt and of tokens; without the level there is not a word of it."""
    lines = ["generate", "-m", model, "-p", "the ", "-n", "6", "--temp", "0", "--device", "cpu"]
    done = run(*lines, MOTET_LOG="debug")
    told = [line for line in done.stderr.splitlines() if line.startswith("motet: debug: ")]
    assert done.returncode == 0 and len(set(told)) == len(told)
    ran = {tuple(line.split()[2:4]) for line in told}
    assert {("attention:", "fused"), ("rms_norm:", "rows")} <= ran and "linear:" in dict(ran)
    assert any(re.fullmatch(r"motet: debug: attention: fused \(not flash: .*; not cuda: .*\)", line) for line in told), told
    forced = run(*lines, MOTET_LOG="debug", MOTET_KERNEL="blocked").stderr
    assert "motet: debug: attention: blocked (MOTET_KERNEL=blocked)\n" in forced
    assert "debug" not in run(*lines).stderr


def test_an_unknown_variable_of_ours_is_a_warning():
    done = run("doctor", MOTET_KERNELS="blocked")
    assert done.returncode == 0 and "fused" in done.stdout
    assert done.stderr.startswith("motet: warning: unknown environment variable 'MOTET_KERNELS': nearest is 'MOTET_KERNEL'; known: ")


def test_what_a_model_costs_needs_no_kernel(tmp_path):
    """Its shapes alone are computed: no row that is named for numbers is asked."""
    run("train", *TINY, "--mechanism", "dcmha", "--out", tmp_path / "run").check_returncode()
    named = "cuda,rotate=rows,rms_norm=rows,dcmha_maps=rows,linear=tiles,silu_times=rows,write_rows=bytes"
    plain, forced = (run("inspect", tmp_path / "run", **more) for more in ({}, {"MOTET_KERNEL": named}))
    assert forced.returncode == 0 and forced.stdout == plain.stdout != "", forced.stderr
