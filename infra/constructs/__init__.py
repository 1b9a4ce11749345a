"""What the stacks are built from."""
