"""Commands that run once, in place of the job: replay of dead letters and refused rows, backfill."""
