"""Parts that several commands use: options, output, HTML pages, AWS errors."""
