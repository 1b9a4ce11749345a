"""Commands that decide: what an environment takes and costs, before anything is deployed."""
