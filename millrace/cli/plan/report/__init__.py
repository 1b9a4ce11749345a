"""Verdicts and pages of plans and simulations."""
