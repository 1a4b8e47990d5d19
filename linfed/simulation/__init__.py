"""Running an algorithm: the arguments of a run, its engine, the loop, what is measured and returned."""
