#!/usr/bin/env python3
"""Prints the rows of motet/text/pipeline/unicode_additions.cpp: how the general categories of the reference (the regular
expressions of the `tokenizers` package) differ from those of utf8proc, which knows an older Unicode.

usage: unicode_additions.py      needs libutf8proc and `pip install tokenizers`
"""
import ctypes
import ctypes.util

from tokenizers import Regex, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def members(category):
    """The code points that the reference puts into the category."""
    split = pre_tokenizers.Split(Regex(r"\p{%s}" % category), "removed")
    out = set()
    for begin in range(0, len(POINTS), 4096):
        part = POINTS[begin : begin + 4096]
        kept = {i for _, (a, b) in split.pre_tokenize_str("".join(map(chr, part))) for i in range(a, b)}
        out.update(c for i, c in enumerate(part) if i not in kept)
    return out


def main():
    library = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
    library.utf8proc_category_string.restype = ctypes.c_char_p
    ours = {c: library.utf8proc_category_string(c).decode() for c in POINTS}
    theirs = {c: category for category in CATEGORIES for c in members(category)}
    rows = []
    for c in POINTS:
        category = theirs.get(c, "Cn")
        if category == ours[c]:
            continue
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == category:
            rows[-1][1] = c
        else:
            rows.append([c, c, category])
    for first, last, category in rows:
        print(f"    {{0x{first:X}, 0x{last:X}, UTF8PROC_CATEGORY_{category.upper()}}},")


if __name__ == "__main__":
    main()
