"""Changes by a deployment: what is deployed, what differs, in which order, and the effect on running jobs."""
