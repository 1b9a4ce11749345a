"""What gets deployed: stacks wire, constructs build, sizes come out of the plan."""
