"""Jobs that run already, deployed by somebody else: scanned, read, imported, cut over."""
