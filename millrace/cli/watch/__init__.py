"""Commands that read from running jobs: state, logs, metrics, cost, verification."""
