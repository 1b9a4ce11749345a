"""Commands that run once instead of the job: replay of dead letters and refused rows, backfill."""
