"""The gates: code that checks every proposed configuration and cannot be talked round."""
