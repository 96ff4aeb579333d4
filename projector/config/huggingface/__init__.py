"""Hugging Face `config.json` for the architecture, `key=value` or DeepSpeed, FSDP and accelerate files for the rest."""
