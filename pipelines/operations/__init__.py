"""Airline operations: aircraft positions, bags, bookings."""
