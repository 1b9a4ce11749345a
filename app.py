"""What `cdk` runs: the stacks of the environment that `-c env=NAME` names."""

from millrace.infra.app import main

main()
