"""What `motet verify` says of files that are right and of one whose numbers are wrong."""
import json
import pathlib
import struct

from conftest import ROOT, refused, run

GOOD = ROOT / "tests/golden/op/plain_mha.safetensors"


def changed(path):
    """The good file with a number of its output 1 % of the largest away."""
    data = bytearray(GOOD.read_bytes())
    size = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8 : 8 + size])["out"]
    begin, end = (8 + size + at for at in entry["data_offsets"])
    code = {"F64": "d", "F32": "f"}[entry["dtype"]]
    values = list(struct.unpack(f"<{(end - begin) // struct.calcsize(code)}{code}", data[begin:end]))
    values[0] += 0.01 * max(map(abs, values))
    data[begin:end] = struct.pack(f"<{len(values)}{code}", *values)
    pathlib.Path(path).write_bytes(data)
    return path


def test_one_wrong_file_of_two_fails(tmp_path):
    bad = changed(tmp_path / "bad.safetensors")
    assert run("verify", GOOD).returncode == 0
    done = run("verify", bad, GOOD, "--json")
    assert done.returncode == 1
    wrong, right = json.loads(done.stdout)
    assert (wrong["result"], right["result"]) == ("fail", "pass")
    assert wrong["worst"] == "out" and [each["tensor"] for each in wrong["failing"]] == ["out"]
    assert abs(wrong["failing"][0]["error"] - 0.01) < 1e-4 and wrong["failing"][0]["tolerance"] == 1e-10
    assert right["failing"] == [] and right["program"] == "operator"
    table = run("verify", bad, GOOD).stdout
    assert "1 of 2 files pass in float64, tolerance 1.0e-10; largest error 1.0e-02 (out of bad.safetensors)" in table
    assert run("verify", bad, "--tolerance", "0.02").returncode == 0
    assert run("verify", bad, "--tolerance", "0.005").returncode == 1


def test_a_file_that_cannot_be_read_leaves_the_others(tmp_path):
    (tmp_path / "none.safetensors").write_bytes(b"1234")
    done = run("verify", tmp_path / "none.safetensors", GOOD, "--json")
    assert done.returncode == 1
    wrong, right = json.loads(done.stdout)
    assert wrong["result"] == "error" and "no safetensors file" in wrong["problem"] and right["result"] == "pass"


def test_tokenizers_are_compared_in_no_dtype(tmp_path):
    for flag, value in (("--dtype", "float32"), ("--device", "cuda"), ("--tolerance", "5")):
        line = refused(2, "verify", tmp_path, "--tokenizers", tmp_path, flag, value)
        assert line == f"motet: {flag}: has no meaning for --tokenizers"


def test_the_dtype_is_what_is_computed_in():
    errors = {}
    for dtype in ("float64", "float32", "bfloat16"):
        done = run("verify", GOOD, "--dtype", dtype, "--json")
        assert done.returncode == 0, done.stdout
        errors[dtype] = json.loads(done.stdout)[0]["outputs"]["error"]
    assert errors["float64"] < 1e-11 < 1e-8 < errors["float32"] < 1e-4 < errors["bfloat16"] < 5e-2
