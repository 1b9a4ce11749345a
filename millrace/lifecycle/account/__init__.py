"""The account's part of an environment: outputs of stacks, table columns, clusters, the bill."""
