"""Commands that find lost records and process records again."""
