#!/usr/bin/env python3
"""Records tests/golden/statistics.json: what scipy.stats says of differences of several seeds.

    python3 scripts/golden_statistics.py            # writes the file anew; wants numpy and scipy
    python3 scripts/golden_statistics.py --check    # recomputes it and compares

Nothing here comes from the program.
"""

import json
import pathlib
import sys

import numpy as np
import scipy
from scipy import stats

FILE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "statistics.json"


def case(a, b, margin):
    a, b = np.asarray(a), np.asarray(b)
    d = a - b
    test = stats.ttest_rel(a, b)
    interval = test.confidence_interval(0.95)
    flips = stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided")
    above = stats.ttest_1samp(d, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(d, margin, alternative="less").pvalue
    return {"a": a.tolist(), "b": b.tolist(), "margin": margin, "mean": float(d.mean()), "p": float(test.pvalue), "low": float(interval.low),
            "high": float(interval.high), "sign_flip": float(flips.pvalue), "equivalence": float(max(above, below)),
            "slope": float(stats.linregress(a, b).slope)}  # fmt: skip


def recorded():
    rng = np.random.default_rng(7)
    cases = []
    for n in (2, 3, 5, 6, 8, 12):
        for shift, margin in ((0.0, 0.1), (0.05, 0.1), (1.0, 0.5), (-3.0, 10.0)):
            a = np.round(rng.normal(3, 1, n), 3)
            cases.append(case(a, np.round(a - shift + rng.normal(0, 0.1, n), 3), margin))
    return {"scipy": scipy.__version__, "cases": cases}


def main():
    made = recorded()
    if "--check" in sys.argv:
        kept = json.loads(FILE.read_text())
        worst = max(abs(x[key] - y[key]) for x, y in zip(made["cases"], kept["cases"], strict=True) for key in x if key not in ("a", "b"))
        print(f"golden_statistics: {len(kept['cases'])} cases, largest difference {worst:.1e}")
        return worst > 1e-9
    FILE.write_text(json.dumps(made, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
