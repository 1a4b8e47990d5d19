"""Cells and drawings that experiments of several rooms use."""
