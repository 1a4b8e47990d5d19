"""Intervals over trials, and statements with one rule for every verdict."""
