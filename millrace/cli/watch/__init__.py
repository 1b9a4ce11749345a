"""Commands that read what runs: its state, logs, metrics, cost and proof."""
