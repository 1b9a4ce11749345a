"""Commands for planning: size and cost of an environment, before anything is deployed."""
