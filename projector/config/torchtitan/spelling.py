"""TorchTitan's keys under their last name, whatever generation a file is of.

Keys moved between sections and were renamed several times from 2024 to 2026; what they mean stayed. Values keep the
key that the file uses, so that messages and reports speak the file's own words.
"""

from collections.abc import Mapping

from projector.config.keys import Keys
from projector.config.torchtitan.facts import torchtitan_facts
from projector.errors import ConfigurationError, shown
from projector.provenance import ConfigValue

SHARED = {
    "micro_batch_size": "training.local_batch_size",
    "global_batch_size": "training.global_batch_size",
    "seq_length": "training.seq_len",
    "tensor_model_parallel_size": "parallelism.tensor_parallel_degree",
    "pipeline_model_parallel_size": "parallelism.pipeline_parallel_degree",
    "context_parallel_size": "parallelism.context_parallel_degree",
    "expert_model_parallel_size": "parallelism.expert_parallel_degree",
    "expert_tensor_parallel_size": "parallelism.expert_tensor_parallel_degree",
    "data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
}
"""TorchTitan's keys for the names that options and requests share; it has none for virtual pipeline stages."""
MICRO_BATCH = "parallelism.pipeline_parallel_microbatch_size"
"""What the micro batch is called where there is a pipeline."""


class TitanKeys(Keys):
    """Typed access by last names; a value may stand under an older one."""

    def __init__(self, values: Mapping[str, ConfigValue], *, file: str | None = None) -> None:
        """Raises `ConfigurationError` for a section that is one value, and for a value under two names that differ."""
        super().__init__(values, file=file)
        self._spelled: dict[str, str] = {}
        for section in sorted(torchtitan_facts().sections & values.keys()):
            if values[section].value not in (None, {}):
                message = f"{shown(values[section].value)} stands where a section is"
                raise ConfigurationError(message, place=self.place(section), expected=f"[{section}] and its values")
        for old, new in torchtitan_facts().renamed.items():
            if old not in values:
                continue
            other = new if new in values else self._spelled.get(new)
            if other is not None and values[other].value != values[old].value:
                message = f"{values[old].value!r} contradicts {other}: {values[other].value!r}"
                raise ConfigurationError(message, place=self.place(old), expected="one of the two keys")
            self._spelled[new] = old

    def raw(self, key: str) -> object:
        """The value under whatever name the file uses; raises `ConfigurationError` when a mapping stands there."""
        spelled = self._spelled.get(key)
        if spelled is not None and key in self.values:
            self.read.add(key)
        return super().raw(spelled or key)

    def stated_by_person(self, key: str) -> bool:
        """Whether the file or an override gives the key, under whatever name, rather than a preset."""
        return super().stated_by_person(self._spelled.get(key, key))

    def place(self, key: str) -> str:
        """File and key, as the file spells it."""
        return super().place(self._spelled.get(key, key))

    def own(self, key: str) -> str:
        """The key as the file spells it."""
        return self._spelled.get(key, key)

    def spelling(self) -> dict[str, str]:
        """The file's own key for each name that options and requests share."""
        shared = {name: self.own(key) for name, key in SHARED.items()}
        if self.integer("parallelism.pipeline_parallel_degree", 1, minimum=1) > 1:
            shared["micro_batch_size"] = self.own(MICRO_BATCH)
        return shared
