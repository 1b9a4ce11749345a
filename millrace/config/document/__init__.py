"""The text of an environment file: its tree with files and lines, edits, problems."""
