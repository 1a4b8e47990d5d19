"""Find and run experiments, and read the records of saved runs."""
