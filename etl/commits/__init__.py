"""Commits of tables: the look-up before each, the fence around it, and the snapshots that it leaves."""
