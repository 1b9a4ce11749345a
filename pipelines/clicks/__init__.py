"""The web shop: clicks as they happen."""
