"""The project's own format: a plain YAML of a whole `TrainingJob`.

`schema` says which keys there are, `reader` reads them, `writing` writes a job of any dialect so that it reads back.
"""
