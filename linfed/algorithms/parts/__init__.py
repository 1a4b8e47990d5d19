"""Parts that several algorithms share: base classes, heads, models, solvers and step sizes."""
