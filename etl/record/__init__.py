"""Common parts of the core: envelope, accounts, Iceberg tables and their commits, files by URL, errors."""
