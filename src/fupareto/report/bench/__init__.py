"""Tables and figures of a bench."""
