"""The command ``millrace``: one file per group of verbs."""
