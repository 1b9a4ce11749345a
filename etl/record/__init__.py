"""What every room shares: the envelope, accounts, Iceberg tables and their commits, files by URL, errors."""
