"""Reading of a streaming job's Python program from its text: nothing of it is run."""
