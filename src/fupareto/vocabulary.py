"""Names that several packages share: the stages of a run. This module does not import torch."""

STAGES = ("initial", "unlearned", "recovered")  # the models that every run reports, in this order
