"""The distribution: what it brings, and what it says of parts that are left out."""
