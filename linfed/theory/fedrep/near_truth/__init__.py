"""FedRep near B*: rates, floors, step sizes and weights in closed form."""
