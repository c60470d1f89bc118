"""The HTML report of one run."""
