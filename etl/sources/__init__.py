"""Sources, each read into the one envelope."""
