"""What is asked of the machine: memory, worker processes, files."""
