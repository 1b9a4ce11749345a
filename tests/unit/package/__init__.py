"""Tests of the distribution: its content, and messages for extras that are not installed."""
