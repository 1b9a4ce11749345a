"""What scanners and our own rules say of the templates of every environment."""
