"""Parts of several commands: options, output, HTML pages, errors of AWS."""
