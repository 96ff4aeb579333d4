"""Reader of TorchTitan: its TOML files of every generation, resolved configurations, and names of its registry.

`reader` is the door; `toml` parses, `registry` reads command lines, `run_script` those of TorchTitan's own script,
`spelling` gives old keys their last name, `model` looks flavors up, `layout` and `training` map values to the parts of
a job, `job` puts them together for this door and for Primus (`projector.config.primus.torchtitan`). `facts` holds what
is known of the framework, as data.
"""
