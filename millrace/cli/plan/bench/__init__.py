"""``millrace bench``."""
