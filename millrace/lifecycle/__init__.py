"""Operation of deployed jobs: look-up, start, deployment, audit, repair."""
