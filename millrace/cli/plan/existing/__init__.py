"""Jobs that run already: one as an environment file, all of an account as a list."""
