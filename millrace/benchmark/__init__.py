"""How fast is one core? What is measured, in which order, and what the measurements mean."""
