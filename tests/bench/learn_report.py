"""The tables of bench_learn.py, as Markdown."""

import math
import statistics

import report

BARS = "▁▂▃▄▅▆▇█"


def machine():
    model, flags = report.processor()
    return f"{model} ({', '.join(flags)}), one thread, fp32; {report.library_versions()}\n"


def final(result):
    return result["curve"][-1][1]


def sparkline(values, low, high):
    """Each value as a bar; all curves of a table share the scale low to high."""
    span = max(high - low, 1e-12)
    return "".join(BARS[round((len(BARS) - 1) * (value - low) / span)] for value in values)


def spread(values):
    """mean ± sample standard deviation."""
    text = f"{statistics.mean(values):.3f}"
    return text + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


def mean_curve(row):
    """The mean loss of a row's seeds at each evaluation."""
    losses = [[point[1] for point in result["curve"]] for result in row["seeds"]]
    return [statistics.mean(column) for column in zip(*losses, strict=True)]


def comparison(rows, batch_tokens):
    """rows: {trial, steps, flops, compute, tried: results of each rate, seeds: results of each seed}."""
    curves = [mean_curve(row) for row in rows]
    low, high = min(map(min, curves)), max(map(max, curves))
    composition = rows[0]["seeds"][0]["composition"]
    lines = [
        f"Validation loss in nats; {composition:.3f} is the entropy of the composition.",
        "",
        "| model | optimizer | rate | MFLOP a token | tokens | TFLOP | loss, "
        f"{len(rows[0]['seeds'])} seeds | range | correct |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(rows, key=lambda row: statistics.mean(map(final, row["seeds"]))):
        losses = [final(result) for result in row["seeds"]]
        correct = statistics.mean(result["curve"][-1][2] for result in row["seeds"])
        lines.append(
            f"| `{row['trial']['architecture']}` | {row['trial']['optimizer']} "
            f"| {row['seeds'][0]['trial']['rate']:g} | {1e-6 * row['flops']:.2f} "
            f"| {row['steps'] * batch_tokens:,} | {1e-12 * row['compute']:.2f} "
            f"| {spread(losses)} | {min(losses):.3f} to {max(losses):.3f} | {100 * correct:.1f} % |"
        )
    lines += ["", "| model | optimizer | curve | at 0 | 1/4 | 1/2 | 3/4 | all of the compute |"]
    lines.append("|---|---|---|---:|---:|---:|---:|---:|")
    for row, curve in zip(rows, curves, strict=True):
        cells = " | ".join(f"{value:.3f}" for value in curve)
        lines.append(
            f"| `{row['trial']['architecture']}` | {row['trial']['optimizer']} "
            f"| {sparkline(curve, low, high)} | {cells} |"
        )
    lines += ["", "| model | optimizer | loss of seed 1, by learning rate |", "|---|---|---|"]
    for row in rows:
        cells = ", ".join(f"{final(r):.3f} at {r['trial']['rate']:g}" for r in row["tried"])
        lines.append(
            f"| `{row['trial']['architecture']}` | {row['trial']['optimizer']} | {cells} |"
        )
    return "\n".join(lines) + "\n"


def lowest(points):
    """The rate at which the parabola through the best point and its neighbours is lowest, and "", or, if
    the best point is at an end, "at most" or "at least". points: (rate, loss), rates ascending and equally
    spaced in their logarithm."""
    i = min(range(len(points)), key=lambda k: points[k][1])
    if i == 0:
        return points[0][0], "at most"
    if i == len(points) - 1:
        return points[-1][0], "at least"
    before, here, after = (points[k][1] for k in (i - 1, i, i + 1))
    place = 0.5 * (before - after) / (before - 2 * here + after)
    return points[i][0] * math.exp(place * math.log(points[i + 1][0] / points[i][0])), ""


def sweep(rows, batch_tokens):
    """rows: {width, tried: results of each hidden_rate}."""
    rates = [result["trial"]["hidden_rate"] for result in rows[0]["tried"]]
    steps = rows[0]["tried"][0]["steps"]
    lines = [
        f"Validation loss of a `transformer` after {steps * batch_tokens:,} tokens, by width and `lr_hidden` "
        "(Muon, `match_adamw`).",
        "",
        "| width | " + " | ".join(f"{rate:g}" for rate in rates) + " | best rate |",
        "|---:|" + "---:|" * (len(rates) + 1),
    ]
    for row in rows:
        losses = [final(result) for result in row["tried"]]
        rate, bound = lowest(list(zip(rates, losses, strict=True)))
        cells = " | ".join(f"{loss:.3f}" for loss in losses)
        lines.append(f"| {row['width']} | {cells} | {(bound + ' ' if bound else '')}{rate:.2g} |")
    return "\n".join(lines) + "\n"
