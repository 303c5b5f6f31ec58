"""The picture of one attempt's curve that is kept beside it."""

from __future__ import annotations

import io
from collections.abc import Sequence


def curve_plot(points: Sequence[tuple[float, float]]) -> bytes:
    """A PNG (640 x 400) of M-Recall over epochs. points: (epoch, M-Recall in per cent), in order, at least one."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    epochs, recalls = zip(*points, strict=True)
    figure = Figure(figsize=(6.4, 4.0), dpi=100, layout="tight")
    axes = figure.add_subplot()
    axes.plot(epochs, recalls, color="#0072B2", marker="o", markersize=3)
    best = recalls.index(max(recalls))
    label = f"best {recalls[best]:.1f} at {epochs[best]:.2f}"
    axes.plot(epochs[best], recalls[best], "o", color="#D55E00", label=label)
    axes.set(xlabel="epochs", ylabel="validation M-Recall (%)")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
