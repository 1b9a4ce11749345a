"""What may be asked for: the environment model, its checks, its JSON Schema."""
