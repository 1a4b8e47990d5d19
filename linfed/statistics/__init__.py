"""Statistics of trials: confidence intervals, power-law fits, and findings with their verdicts."""
