"""The HTML comparison of several runs."""
