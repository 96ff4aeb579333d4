"""Megatron-LM's arguments by name -> `TrainingJob`; whoever states them (a Primus file, a script) brings them here."""
