"""The verdicts and the pages of a plan and of a simulation."""
