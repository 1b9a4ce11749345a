"""Change events of databases: a module per program that writes them."""
