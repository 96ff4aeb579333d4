"""Cases from public bug reports: what a person had, what was right, and how to judge (`tests/accuracy/cases.yaml`).

A test's name begins with the case it judges. Cases, and parts of cases, that today's product cannot answer stand in
`not_yet.yaml` with what is missing; `test_complete` holds the two together.
"""
