"""Commands that deploy, start and stop: on AWS and on this machine."""
