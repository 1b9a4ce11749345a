"""Build, run, supervision, fence and shutdown of a job."""
