#!/usr/bin/env python3
"""Fails when a Markdown file or a comment in C++ names a path that does not exist, or a block of README.md is neither sh
nor console, or a mechanism has no row in the table of its folder.

A path is the target of a link, or a word in backticks that has a known ending, ends in a slash, or begins with an
entry of the repository's top or of the document's own folder. What git ignores (build/, runs/ ...) is not checked.
"""
import pathlib
import re
import subprocess
import sys

ENDINGS = {".md", ".h", ".cpp", ".cu", ".cuh", ".py", ".cmake", ".js", ".css", ".yml"}
GENERATED = {"build", "build-fuzz", "runs", "dist", ".venv"}
WORD = re.compile(r"^[\w.+*-]+(/[\w.+*-]*)*$")
CODE = re.compile(r"`([^`]+)`")
COMMENT = re.compile(r"(?:^|[^:\"])//(.*)")
FILE = re.compile(r"(?<![\w./-])[A-Za-z_][\w./-]*\.(?:md|h|cpp|cu|py)\b(?!\.)")
FOREIGN = {  # of other projects
    "torch/torch.h", "highway.h", "llama.cpp", "ggml-common.h", "multihead_flashdiff_1.py", "multihead_flashdiffv2.py",
    "dev/data/data_common.py",
}
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^\s*(```+|~~~+)\s*(\S*)")


def files_of(root):
    """The paths that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if (root / line).exists()]


def is_path(word, root, folder):
    first = word.split("/")[0]
    if not WORD.match(word) or first in GENERATED:
        return False
    if pathlib.PurePosixPath(word).suffix in ENDINGS and len(word) > 4:
        return True
    return "/" in word and (word.endswith("/") or (root / first).exists() or (folder / first).exists())


def exists(word, root, folder, names):
    """From the document's folder, from the top, or, for a bare file name, anywhere."""
    pattern = word.rstrip("/")
    if any(True for base in (folder, root) for _ in base.glob(pattern)):
        return True
    return "/" not in word and word in names


def check(document, root, names):
    """One line for each mistake in a document."""
    out = []
    folder = document.parent
    path = document.relative_to(root).as_posix()
    fence = None
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        match = FENCE.match(line)
        if fence:
            if match and match[1].startswith(fence) and not match[2]:
                fence = None
            continue
        if match:
            fence = match[1]
            if path == "README.md" and match[2] not in ("sh", "console"):
                out.append(f"{path}:{number}: a block is fenced {match[2] or 'without a name'!r}, want sh or console")
            continue
        for word in CODE.findall(line):
            if is_path(word, root, folder) and not exists(word, root, folder, names):
                out.append(f"{path}:{number}: {word} does not exist")
        for target in LINK.findall(line):
            target = target.split("#")[0]
            if target and "://" not in target and not target.startswith("mailto:") and not (folder / target).exists():
                out.append(f"{path}:{number}: the link {target} leads nowhere")
    if fence:
        out.append(f"{path}: a block is not closed")
    return out


def check_comments(source, root, names):
    """One line for each file that a comment of a C++ source names and that is not there."""
    out = []
    path = source.relative_to(root).as_posix()
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
        for comment in COMMENT.findall(line):
            for word in FILE.findall(comment):
                known = word in FOREIGN or exists(word, root, source.parent, names) or (root / "motet" / word).exists()
                if not known:
                    out.append(f"{path}:{number}: {word} does not exist")
    return out


def check_mechanisms(root):
    """One line for each mechanism that the table of its folder does not link."""
    table = root / "motet/mechanisms/README.md"
    linked = set(LINK.findall(table.read_text(encoding="utf-8"))) if table.exists() else set()
    own = sorted(readme.relative_to(table.parent).as_posix() for readme in table.parent.glob("*/README.md"))
    return [f"motet/mechanisms/README.md: no row links {readme}" for readme in own if readme not in linked]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    files = files_of(root)
    names = {pathlib.PurePosixPath(file).name for file in files}
    documents = [root / file for file in files if file.endswith(".md")]
    sources = [root / file for file in files if file.endswith((".h", ".cpp", ".cu", ".cuh"))]
    found = [line for document in documents for line in check(document, root, names)]
    found += [line for source in sources for line in check_comments(source, root, names)]
    found += check_mechanisms(root)
    for line in found:
        print(line, file=sys.stderr)
    print(f"check_docs: {len(documents)} documents, {len(sources)} sources, {len(found)} mistakes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
