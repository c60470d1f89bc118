"""Reports: a self-contained HTML page per run, one per comparison, and figures."""

from fupareto.report.figures import figures_of, write_figures
from fupareto.report.page.document import render, render_comparison

__all__ = ["figures_of", "render", "render_comparison", "write_figures"]
