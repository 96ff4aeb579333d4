"""torch's caching allocator: which segments it takes from the device for a sequence of allocations.

The rules are those of PyTorch c10/cuda/CUDACachingAllocator.cpp (2.4 to 2.10): sizes are rounded, small and large ones
live in pools of their own, per stream; the smallest free block that fits is taken, and split when the rest is worth
it; freed blocks join their free neighbours of the same segment. Segments go back to the device only when it is full,
which is not replayed: what is reserved never falls. Expandable segments grow one address range per pool instead.
"""

from bisect import bisect_left, insort

MINIMUM_BLOCK = 512
"""Bytes that sizes are rounded to (`kMinBlockSize`)."""
SMALL_SIZE = 1 << 20
"""Largest request of a small pool, in bytes (`kSmallSize`)."""
SMALL_SEGMENT = 2 << 20
"""Segment of a small pool, in bytes (`kSmallBuffer`)."""
LARGE_SEGMENT = 20 << 20
"""Segment for a large request below `OWN_SEGMENT`, and page of an expandable segment, in bytes (`kLargeBuffer`)."""
OWN_SEGMENT = 10 << 20
"""Requests of this many bytes get a segment of their own size (`kMinLargeAlloc`)."""
ROUND_LARGE = 2 << 20
"""Bytes that such a segment is rounded to (`kRoundLarge`)."""


OVERSIZE_REST = 20 << 20
"""Bytes that a block beyond `max_split_size_mb` may have more than is asked of it (`max_non_split_rounding_size`)."""
UNLIMITED = 1 << 62
"""Block size that no GPU holds, in bytes."""


class Block:
    """A range of a segment, free or in use."""

    __slots__ = ("after", "before", "free", "key", "pool", "size")

    def __init__(self, size: int, key: int, pool: "Pool") -> None:
        """`key` orders blocks by address."""
        self.size = size
        self.key = key
        self.pool = pool
        self.free = False
        self.before: Block | None = None
        self.after: Block | None = None


class Pool:
    """Free blocks of one stream and size class, the smallest first, by address among equals."""

    __slots__ = ("edge", "free", "small")

    def __init__(self, *, small: bool) -> None:
        """An empty pool."""
        self.small = small
        self.free: list[tuple[int, int, Block]] = []
        self.edge: Block | None = None
        """Last block of an expandable segment."""

    def add(self, block: Block) -> None:
        """Offer a free block."""
        block.free = True
        insort(self.free, (block.size, block.key, block))

    def remove(self, block: Block) -> None:
        """Take a block back from the offer."""
        block.free = False
        del self.free[bisect_left(self.free, (block.size, block.key))]

    def take(self, size: int, oversize: int) -> Block | None:
        """The smallest free block of at least `size`, the one with the lowest address among equals, off the offer.

        Blocks from `oversize` on serve only requests of that size and more, and these only when little is left over.
        """
        at = bisect_left(self.free, (size,))
        if at == len(self.free):
            return None
        found = self.free[at][0]
        if found >= oversize and (size < oversize or found >= size + OVERSIZE_REST):
            return None
        block = self.free.pop(at)[2]
        block.free = False
        return block


class CachingAllocator:
    """Bytes reserved and allocated after any sequence of allocations."""

    def __init__(self, *, expandable: bool = False, maximum_split_bytes: int | None = None) -> None:
        """`expandable_segments` and `max_split_size_mb` of `PYTORCH_CUDA_ALLOC_CONF`, the second without the first."""
        self._expandable = expandable
        self._oversize = UNLIMITED if maximum_split_bytes is None or expandable else maximum_split_bytes
        self._pools: dict[tuple[int, bool], Pool] = {}
        self._segments = 0
        self.reserved_bytes = 0
        self.allocated_bytes = 0
        self.peak_allocated_bytes = 0

    def allocate(self, size: int, stream: int = 0) -> Block:
        """A block of `size` bytes or a little more, from the pool of a stream."""
        size = -(-max(size, 1) // MINIMUM_BLOCK) * MINIMUM_BLOCK
        small = size <= SMALL_SIZE
        pool = self._pools.get((stream, small))
        if pool is None:
            pool = self._pools[stream, small] = Pool(small=small)
        block = pool.take(size, self._oversize)
        if block is None:
            block = self._grown(pool, size) if self._expandable else self._segment(pool, size)
        rest = block.size - size
        if rest and (small or self._expandable or (rest > SMALL_SIZE and size < self._oversize)):
            self._split(block, size)
        self.allocated_bytes += block.size
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return block

    def free(self, block: Block) -> None:
        """Give a block back to its pool, joined with its free neighbours."""
        self.allocated_bytes -= block.size
        pool = block.pool
        before, after = block.before, block.after
        if before is not None and before.free:
            pool.remove(before)
            self._absorb(before, block)
            block = before
        if after is not None and after.free:
            pool.remove(after)
            self._absorb(block, after)
        pool.add(block)

    def _segment(self, pool: Pool, size: int) -> Block:
        """A new segment for a request, as one block."""
        if pool.small:
            taken = SMALL_SEGMENT
        elif size < OWN_SEGMENT:
            taken = LARGE_SEGMENT
        else:
            taken = -(-size // ROUND_LARGE) * ROUND_LARGE
        self.reserved_bytes += taken
        self._segments += 1
        return Block(taken, self._segments << 48, pool)

    def _grown(self, pool: Pool, size: int) -> Block:
        """The end of the pool's expandable segment, which grows by whole pages."""
        page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
        edge = pool.edge
        if edge is not None and edge.free:
            pool.remove(edge)
            grown = -(-(size - edge.size) // page) * page
            edge.size += grown
            block = edge
        else:
            grown = -(-size // page) * page
            if edge is None:
                self._segments += 1
            key = self._segments << 48 if edge is None else edge.key + edge.size
            block = Block(grown, key, pool)
            block.before = edge
            if edge is not None:
                edge.after = block
        self.reserved_bytes += grown
        pool.edge = block
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.size - size, block.key + size, block.pool)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after = rest
        block.size = size
        if block.pool.edge is block:
            block.pool.edge = rest
        block.pool.add(rest)

    @staticmethod
    def _absorb(block: Block, following: Block) -> None:
        block.size += following.size
        block.after = following.after
        if following.after is not None:
            following.after.before = block
        if block.pool.edge is following:
            block.pool.edge = block
