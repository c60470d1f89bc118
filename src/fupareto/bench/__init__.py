"""Methods side by side: the bench file, the running of its cells, and what it leaves on disk."""
