"""Property tests draw the same examples on every run and have no time limit per example."""

from hypothesis import settings

settings.register_profile("fupareto", deadline=None, derandomize=True)
settings.load_profile("fupareto")
