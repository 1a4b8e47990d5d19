"""Access to the machine: memory, worker processes, files and versions."""
