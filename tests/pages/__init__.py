"""Tests of HTML pages in a real browser without a network."""
