"""What saved runs say at a glance: the scoreboard."""
