"""Everything that is deployed: stacks connect the parts, constructs build them, the plan gives the sizes."""
