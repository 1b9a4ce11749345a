"""Sources, each read into the one envelope: a folder for each kind, several in one query, and what they have in common."""
