"""States in which a run of an engine has ended, as its API names them."""

GLUE = ("STOPPED", "SUCCEEDED", "FAILED", "TIMEOUT", "ERROR", "EXPIRED")
EMR_SERVERLESS = ("SUCCESS", "FAILED", "CANCELLED")
ALL = frozenset({*GLUE, *EMR_SERVERLESS})
SUCCEEDED = ("SUCCEEDED", "SUCCESS")
