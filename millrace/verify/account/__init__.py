"""Claims that only an account can prove, and the checks that ask one."""
