"""CDK app: creates the stacks of the environment in `-c env=NAME`."""

from millrace.infra.app import main

main()
