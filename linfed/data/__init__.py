"""The clients' data: batches of samples, their sources, and the configurations that describe them."""
