"""What clients see: batches, the questions they answer, and where they come from."""
