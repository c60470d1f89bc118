"""Benches, which compare methods: the bench file, running its cells, and the output files."""
