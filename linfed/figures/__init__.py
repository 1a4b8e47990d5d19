"""Style of all figures, and the figures and tables shown in notebooks."""
