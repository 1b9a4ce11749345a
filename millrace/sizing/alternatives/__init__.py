"""Other designs: the search for the cheapest, remedies, risks, differences of plans."""
