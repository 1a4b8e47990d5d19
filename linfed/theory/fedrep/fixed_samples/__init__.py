"""FedRep on fixed samples: the minimum of the empirical risk, and what it costs the clients."""
