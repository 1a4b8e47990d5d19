"""Experiments on the shortcut draft."""
