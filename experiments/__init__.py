"""One module per figure or table, run by ``linfed reproduce``."""
