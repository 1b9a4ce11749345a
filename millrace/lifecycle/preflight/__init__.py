"""Questions to an account before a deployment."""
