"""Running a method: the loop, the run directory and the memory budget."""
