"""FedRep without simulation: its state evolution, and the closed forms near the truth."""
