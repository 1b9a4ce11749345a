"""What the project is made of, what is known against it, and what must not be in it."""
