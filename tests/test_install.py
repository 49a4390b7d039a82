"""cmake --install gives a tree that runs from elsewhere."""
import shutil
import subprocess

from conftest import ROOT, environment


def test_the_installed_tree_runs_from_elsewhere(tmp_path):
    subprocess.run(["cmake", "--install", ROOT / "build", "--prefix", tmp_path / "first"], check=True, capture_output=True)
    shutil.move(tmp_path / "first", tmp_path / "moved")
    done = subprocess.run(
        [tmp_path / "moved" / "bin" / "motet", "doctor"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "blocked" in done.stdout
    assert (tmp_path / "moved" / "include" / "motet" / "motet.h").is_file()
