"""Input of a job's start, read strictly: the launch document, its arguments and its kinds."""
