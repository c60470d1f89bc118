"""Words that several packages share and that need no torch: stages of a run and names of its files."""

STAGES = ("initial", "unlearned", "recovered")  # the models that every run reports, in this order
