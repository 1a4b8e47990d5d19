"""Grids of cells, the tables of their results, and the export of tables to files and other libraries."""
