"""What should change? Event logs in; findings out."""
