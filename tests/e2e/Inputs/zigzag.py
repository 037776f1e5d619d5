# SPDX-License-Identifier: Apache-2.0
"""Checks the `cp-index --json` on stdin against the definition: `zigzag.py CP Q K RATIO`, Q and K as lists 1,2,3.

Every token is asked where it lies and what it sees, instead of every row.
"""
import json
import sys

cp, ratio = int(sys.argv[1]), int(sys.argv[4])
queries, keys = ([int(n) for n in text.split(",")] for text in sys.argv[2:4])
document = json.load(sys.stdin)
length = sum(2 * -(-q // (2 * cp)) for q in queries)
assert document["mirror_len"] == length
assert len(document["ranks"]) == cp
for rank in document["ranks"]:
    assert [len(rank[name]) for name in ("mirror_index", "ks", "ke")] == [length] * 3
place = first_row = first_key = 0
for q, k in zip(queries, keys):
    ps = -(-q // (2 * cp))
    for t in range(q):
        block = t // ps
        rank, half = (block, 0) if block < cp else (2 * cp - 1 - block, 1)
        row = first_row + half * ps + t % ps
        assert document["ranks"][rank]["mirror_index"][row] == place, (rank, row)
        assert document["reverse_index"][place] == rank * length + row
        assert document["ranks"][rank]["ks"][row] == first_key
        seen = sum(1 for last in range(ratio - 1, k - q + t + 1, ratio))  # a key is there once its last token is
        assert document["ranks"][rank]["ke"][row] == first_key + seen, (rank, row)
        place += 1
    first_row += 2 * ps
    first_key += k // ratio
assert len(document["reverse_index"]) == place
padding = [(rank["ks"][i], rank["ke"][i]) for rank in document["ranks"] for i in range(length) if rank["mirror_index"][i] == -1]
assert len(padding) == cp * length - place and all(begin == end for begin, end in padding)
