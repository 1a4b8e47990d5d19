"""Tables: cells of a grid, their rows, and files."""
