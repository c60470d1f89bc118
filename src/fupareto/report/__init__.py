"""What does a run look like to a person? One self-contained HTML page per run, and one per comparison."""

from fupareto.report.page import render, render_comparison

__all__ = ["render", "render_comparison"]
