"""What a job is told at its start: the launch document, its arguments, its kinds, read strictly."""
