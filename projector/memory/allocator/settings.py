"""The allocator with a job's settings."""

from projector.job import Software
from projector.memory.allocator.caching import CachingAllocator


def allocator_of(software: Software) -> CachingAllocator:
    """An empty allocator as the job's environment sets it up."""
    return CachingAllocator(expandable=software.expandable_segments, maximum_split_bytes=software.maximum_split_bytes)
