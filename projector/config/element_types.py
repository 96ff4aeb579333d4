"""Bytes of an element of the plain types, by every name that frameworks have for them."""

ELEMENT_BYTES = {
    "fp32": 4,
    "float32": 4,
    "bf16": 2,
    "bfloat16": 2,
    "fp16": 2,
    "float16": 2,
    "fp8": 1,
}
"""Megatron-LM's and DeepSpeed's names and torch's (torch.finfo)."""
