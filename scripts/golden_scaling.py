#!/usr/bin/env python3
"""Records tests/golden/scaling.json: power laws, compute factors and their intervals as scipy has them.

    python3 scripts/golden_scaling.py            # writes the file anew; wants numpy and scipy
    python3 scripts/golden_scaling.py --check    # recomputes it and compares

Nothing here comes from the program. Laws are those of scipy.optimize.curve_fit, intervals of scipy.stats.t.
"""

import argparse
import json
import pathlib
import sys
import warnings

import numpy as np
import scipy
from scipy import optimize, stats

FILE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "scaling.json"
POINTS_FOR_FLOOR = 5


def fitted(costs, losses):
    """(floor, factor, exponent), by costs over their geometric mean, as powers of 1e12 leave no digits."""
    middle = np.exp(np.mean(np.log(costs)))
    x, y = np.asarray(costs) / middle, np.asarray(losses)
    options = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "maxfev": 20000}
    if len(x) < POINTS_FOR_FLOOR:
        (factor, exponent), _ = optimize.curve_fit(lambda c, a, b: a * c**-b, x, y, p0=[y.mean(), 0.1], **options)
        floor = 0.0
    else:
        bounds = ([0, 0, 1e-3], [np.inf, np.inf, 4])
        start = [0.8 * y.min(), 0.2 * y.mean(), 0.3]
        (floor, factor, exponent), _ = optimize.curve_fit(
            lambda c, e, a, b: e + a * c**-b, x, y, p0=start, bounds=bounds, method="trf", xtol=1e-15, ftol=1e-15, gtol=1e-15
        )
    return float(floor), float(factor * middle**exponent), float(exponent)


def noise(count, size, phase):
    return [size * np.sin(phase + 2.3 * i * i) for i in range(count)]


def laws():
    cases = []
    for floor, factor, exponent, costs, size in [
        (0, 40, 0.1, [1e9, 4e9], 0.0),
        (0, 55, 0.12, [1e9, 3e9, 1e10], 0.01),
        (0, 9, 0.05, [2e10, 5e10, 9e10, 3e11], 0.02),
        (1.7, 400, 0.3, [1e9, 3e9, 1e10, 3e10, 1e11], 0.0),
        (1.2, 60, 0.2, [1e9, 2e9, 5e9, 2e10, 6e10, 2e11, 1e12], 0.01),
    ]:
        losses = [floor + factor * c**-exponent + e for c, e in zip(costs, noise(len(costs), size, 1.0))]
        found = fitted(costs, losses)
        cases.append({"costs": costs, "losses": losses, "floor": found[0], "factor": found[1], "exponent": found[2]})
    return cases


def interval(factor, alone):
    """Around a factor, by Student's t of the logarithms of what each seed alone gives."""
    half = stats.t.ppf(0.975, len(alone) - 1) * stats.sem(np.log(alone))
    return [float(factor * np.exp(-half)), float(factor * np.exp(half))]


def factors():
    """Losses by size and seed of plain attention and of another mechanism."""
    cases = []
    for sizes, seeds in ((3, 5), (4, 8)):
        flops = [1e11 * 2.5**i for i in range(sizes)]
        other_flops = [1.04 * c for c in flops]
        shared = noise(seeds, 0.02, 0.3)  # luck of a seed that both have
        plain = [[30 * c**-0.1 + s + n for s, n in zip(shared, noise(seeds, 0.004, c % 7))] for c in flops]
        other = [[29.5 * c**-0.1 + s + n for s, n in zip(shared, noise(seeds, 0.004, 1 + c % 5))] for c in other_flops]

        def factor(drawn, flops=flops, other_flops=other_flops, plain=plain, other=other):
            drawn = np.asarray(drawn, dtype=int)
            _, a, b = fitted(flops, np.asarray(plain)[:, drawn].mean(axis=1))
            losses = np.asarray(other)[:, drawn].mean(axis=1)
            return float(np.exp(np.mean(np.log((a / losses) ** (1 / b) / np.asarray(other_flops)))))

        whole = factor(np.arange(seeds))
        cases.append({"flops": flops, "other_flops": other_flops, "plain": plain, "other": other,
                      "factor": whole, "interval": interval(whole, [factor([s]) for s in range(seeds)])})  # fmt: skip
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="recompute and compare")
    given = parser.parse_args()
    warnings.simplefilter("ignore", optimize.OptimizeWarning)  # a law through two points has no covariance
    made = {"scipy": scipy.__version__, "laws": laws(), "factors": factors()}
    text = json.dumps(made, indent=1) + "\n"
    if not given.check:
        FILE.write_text(text, encoding="utf-8")
        return 0
    same = text == FILE.read_text(encoding="utf-8")
    print("the same" if same else f"{FILE} differs from what scipy {scipy.__version__} gives")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
