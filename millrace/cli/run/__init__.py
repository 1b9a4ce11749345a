"""Commands that deploy, start and stop jobs, on AWS and on this machine."""
