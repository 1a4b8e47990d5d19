"""From a grid to a verdict: grids of cells, the tables they fill, figures and findings."""
