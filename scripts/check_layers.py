#!/usr/bin/env python3
"""Fails when a file includes what the architecture forbids (TABLE is the architecture), or when two headers give one name to two types.

usage: check_layers.py              checks the repository
       check_layers.py --self-test  plants mistakes in a temporary tree and checks that each is found
"""
import pathlib
import re
import sys
import tempfile

# Folder of motet/ -> the folders it may include besides core and itself.
TABLE = {
    "core": "",
    "cuda": "",
    "formats": "",
    "http": "",
    "kernels": "cuda",
    "report": "",
    "statistics": "formats",
    "text": "formats",
    "sampling": "text formats",
    "data": "formats text",
    "ops": "kernels cuda",
    "attention": "ops cuda",
    "layers": "ops",
    "mechanisms": "attention layers ops",
    "models": "attention layers mechanisms ops",
    "checkpoints": "formats models layers mechanisms attention ops",
    "probe": "attention mechanisms models ops report",
    "tasks": "data",
    "processes": "ops",
    "train": "processes tasks data text formats models mechanisms layers checkpoints ops probe report",
    "generate": "sampling text models checkpoints attention ops kernels",
    "experiments": "statistics formats data report",
    "compare": "statistics train data text formats models mechanisms attention checkpoints ops generate probe report",
    "lab": "tasks experiments statistics compare train eval probe data text formats models mechanisms layers attention ops bench",
    "serve": "http sampling text formats",
    "eval": "train data formats generate models checkpoints probe ops text report",
    "verify": "formats checkpoints models mechanisms layers attention ops text generate train",
    "bench": "train processes generate models attention ops data report",
}
EVERYTHING = {"commands"}  # turns requests into calls; with motet/motet.cpp the only one that sees all
ENTRY = "motet/motet.h"  # the one header that programs may include, besides core
TORCH_FREE = {"core", "cuda", "formats", "text", "sampling", "data", "report", "kernels", "statistics", "experiments", "tasks", "http", "serve"}
OPTIONS = re.compile(r"^motet/[a-z]+/options\.(h|cpp)$")  # tables that the front prints too: torch-free in every folder
ALONE = {"attention/cpu", "attention/cuda"}  # folders inside a folder that see only themselves, core, motet/cuda and PLAIN: torch-free kernels
PLAIN = "motet/attention/plain.h"
ORACLE = "motet/attention/cpu/testing.h"  # what the tests of all kernels compare with

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{")
TYPE = re.compile(r"^(?:struct|class|enum class|enum|union|using) (\w+)(?:\s+final)?(?:\s*[:={].*)$|^TORCH_MODULE\((\w+)\)")
EMULATED = "motet/cuda/emulation"  # headers in the place of motet/cuda/device.h, with its names
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/|^motet/ops/torch\.h$")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def place(path):
    """(owner, folder) of a path such as motet/data/corpus.h -> ("motet", "data"), motet/motet.h -> ("motet", "")."""
    parts = path.split("/")
    return parts[0], parts[1] if len(parts) > 2 else ""


def wrong_include(path, included, quoted, root):
    """The reason why `path` may not include `included`, or None."""
    owner, folder = place(path)
    alone = next((inner for inner in ALONE if path.startswith(f"motet/{inner}/")), None)
    tables = OPTIONS.match(path)
    torch_free = owner == "apps" or (owner == "motet" and folder in TORCH_FREE) or alone or tables
    if torch_free and TORCH.search(included):
        return "is torch-free"
    if not quoted:
        return None
    target_owner, target_folder = place(included)
    if target_owner not in ("motet", "apps"):
        return 'wants "motet/<folder>/<file>" between quotes'
    if not (root / included).is_file():
        return "there is no such file"
    seen = (f"motet/{alone}/", "motet/core/", "motet/cuda/", PLAIN, *([ORACLE] if path.endswith(("_test.cpp", "/testing.h")) else []))
    if alone and not included.startswith(seen) and included.startswith("motet/"):
        return f"motet/{alone} may include itself, core, cuda and {PLAIN} only"
    if tables and target_folder not in ("core", "kernels") and not OPTIONS.match(included):
        return "tables of options may include core, kernels and each other only"
    if owner == "apps":
        own = target_owner == "apps" and target_folder == folder
        allowed = own or target_folder == "core" or included == ENTRY or OPTIONS.match(included)
        return None if allowed else f"may include core, options.h and {ENTRY} only"
    if target_owner == "apps":
        return "the library may not include a program"
    if folder in EVERYTHING or folder == "" or target_folder in ("core", folder):
        return None
    if target_folder not in TABLE[folder].split():
        return f"motet/{folder} may include core {TABLE[folder]}".rstrip()
    return None


def findings(root):
    """One line for each wrong include below `root`."""
    out = []
    files = [p for top in ("motet", "apps") for p in sorted((root / top).rglob("*")) if p.suffix in SUFFIXES]
    for file in files:
        path = file.relative_to(root).as_posix()
        owner, folder = place(path)
        if owner == "motet" and folder and folder not in TABLE and folder not in EVERYTHING:
            out.append(f"{path}:1: the folder motet/{folder} is not in the table of scripts/check_layers.py")
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                reason = wrong_include(path, match[2], match[1] == '"', root)
                if reason:
                    out.append(f"{path}:{number}: includes {match[2]}: {reason}")
    return out


def doubles(root):
    """One line for each type of a header whose name another header defines too: the linker would take the members of one for both."""
    out, first = [], {}
    for file in sorted((root / "motet").rglob("*.h")):
        path, inside = file.relative_to(root).as_posix(), []
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if match := NAMESPACE.match(line):
                inside.append(match[1])
            elif line.startswith("}  // namespace") and inside:
                inside.pop()
            elif (match := TYPE.match(line)) and not path.startswith(EMULATED):
                name = "::".join([*inside, match[1] or match[2]])
                other = first.setdefault(name, path)
                if other != path:
                    out.append(f"{path}:{number}: {name} is a type of {other} too")
    return out


def self_test():
    """Each planted mistake must be found, and the tree without it must be clean."""
    good = {
        "motet/core/error.h": "#include <string>\n",
        "motet/motet.h": "",
        "motet/data/corpus.h": '#include "motet/core/error.h"\n',
        "motet/attention/attention.h": "namespace motet {\nstruct Call {\n};\n}  // namespace motet\n",
        "motet/attention/cpu/call.h": "namespace motet::fused {\nstruct Call;\nstruct Call {\n};\n}  // namespace motet::fused\n",
        PLAIN: "",
        ORACLE: f'#include "{PLAIN}"\n',
        "motet/attention/cuda/right_test.cpp": f'#include "{ORACLE}"\n#include "{PLAIN}"\n',
        "motet/train/loop.h": '#include "motet/data/corpus.h"\n#include <torch/torch.h>\n',
        "motet/commands/train.cpp": '#include "motet/train/loop.h"\n',
        "motet/motet.cpp": '#include "motet/commands/train.cpp"\n',
        "motet/train/options.h": '#include "motet/core/error.h"\n',
        "apps/motet/main.cpp": '#include "motet/motet.h"\n#include "motet/core/error.h"\n#include "motet/train/options.h"\n',
    }
    planted = {
        "motet/data/wrong.cpp": '#include "motet/train/loop.h"\n',
        "motet/core/wrong.h": '#include "motet/data/corpus.h"\n',
        "motet/core/torch.cpp": "#include <ATen/core/Tensor.h>\n",
        "motet/attention/cpu/torch.cpp": "#include <ATen/core/Tensor.h>\n",
        "motet/attention/cpu/wrong.cpp": '#include "motet/attention/attention.h"\n',
        "motet/attention/cuda/wrong.cu": '#include "motet/attention/attention.h"\n',
        "motet/attention/cuda/oracle.h": f'#include "{ORACLE}"\n',
        "motet/train/missing.cpp": '#include "motet/data/none.h"\n',
        "motet/train/relative.cpp": '#include "loop.h"\n',
        "motet/train/program.cpp": '#include "apps/motet/main.cpp"\n',
        "motet/misc/new.cpp": "",
        "apps/motet/deep.cpp": '#include "motet/data/corpus.h"\n',
        "apps/motet/torch.cpp": "#include <torch/torch.h>\n",
        "motet/compare/options.h": '#include "motet/train/loop.h"\n',
        "motet/generate/options.cpp": "#include <torch/torch.h>\n",
        "motet/verify/call.h": "namespace motet {\nstruct Call : Base {\n",
        "motet/verify/alias.h": "namespace motet {\nusing Call = int;\n",
        "motet/verify/module.h": "namespace motet {\nTORCH_MODULE(Call);  // a class of that name\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        def put(path, text):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")

        for path, text in good.items():
            put(path, text)
        assert findings(root) + doubles(root) == [], findings(root) + doubles(root)
        for path, text in planted.items():
            put(path, text)
            found = findings(root) + doubles(root)
            assert len(found) == 1 and re.match(re.escape(path) + ":[12]: ", found[0]), (path, found)
            (root / path).unlink()
    print(f"check_layers: {len(planted)} planted mistakes found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(__file__).resolve().parent.parent
    found = findings(root) + doubles(root)
    for line in found:
        print(line, file=sys.stderr)
    print(f"check_layers: {len(found)} mistakes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
