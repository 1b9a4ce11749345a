"""The example: departures from New York, enriched."""
