"""Files that travel with a job, and its settings: archive, jars, launch document, Spark's settings."""
