"""What differs between Glue, EMR Serverless and the sandbox, one module each."""
