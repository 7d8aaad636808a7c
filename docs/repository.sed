# Reads the JSON that mdBook gives to a preprocessor, [context, book], and writes the book. A link to a file outside of `docs` becomes
# its text and the path of the file.
s/^.*,(\{"items":.*)\]$/\1/
s/\[([^]]*)\]\((\.\.\/)+(CHANGELOG|CONTRIBUTING|Cargo|README|SECURITY|devstack|drivers|etc|examples|handlers|src|tests)([^)]*)\)/\1 (`\3\4`)/g
