"""Reader of AMD Primus experiment files (framework `megatron`)."""
