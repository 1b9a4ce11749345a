"""A job as a whole: built, run, supervised, fenced and stopped."""
