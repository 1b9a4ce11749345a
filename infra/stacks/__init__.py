"""One module per stack."""
