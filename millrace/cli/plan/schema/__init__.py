"""``millrace schema``."""
