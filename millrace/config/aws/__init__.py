"""AWS's names and rules that a configuration needs without an account: regions, zones, accounts, versions."""
