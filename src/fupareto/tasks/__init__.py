"""What clients minimise: losses by name."""
