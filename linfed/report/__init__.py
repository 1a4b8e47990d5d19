"""What saved runs say: the scoreboard, a report of all of it, and what moved between two runs."""
