"""Sources, each read into the common envelope: a folder for each kind, several in one query, and common parts."""
