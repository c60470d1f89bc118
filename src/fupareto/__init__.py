"""Make a federated model forget clients, keep it useful for everyone else, and prove it."""
