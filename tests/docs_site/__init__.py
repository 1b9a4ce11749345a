"""The documentation as a site: its generated pages, and what MkDocs is told by `toolchain/mkdocs.yml`."""
