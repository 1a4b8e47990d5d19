"""Reports on saved runs: the scoreboard, an HTML report, and the comparison of two runs."""
