"""Records of a source counted: audits of what landed, and the split of a topic over jobs."""
