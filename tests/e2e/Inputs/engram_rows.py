# SPDX-License-Identifier: Apache-2.0
"""Checks the `engram-hash --json` on stdin: `engram_rows.py MODEL.toml ENP IDS`.

Everything is computed again from the model's file; multipliers it does not give are taken from the document.
"""
import json
import math
import sys
import tomllib

with open(sys.argv[1], "rb") as file:
    model = tomllib.load(file)
engram = model["engram"]
parts = int(sys.argv[2])
ids = [int(n) for n in sys.argv[3].split(",")]


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


def wrapped(n):
    """The 64 bits of n as two's complement says them."""
    return (n + 2**63) % 2**64 - 2**63


document = json.load(sys.stdin)
layers = document["layers"]
assert [layer["layer"] for layer in layers] == engram["layers"]
number = engram["vocab_per_head"]
for idx, layer in enumerate(layers):
    multipliers = layer["multipliers"]
    if "multipliers" in engram:
        assert multipliers == engram["multipliers"][idx]
    else:
        assert len(multipliers) == engram["ngram"]
        assert all(m % 2 == 1 and 0 < m <= (2**63 - 1) // model["vocab"] for m in multipliers)
    primes = []
    for _ in range((engram["ngram"] - 1) * engram["heads"]):
        while not is_prime(number):
            number += 1
        primes.append(number)
        number += 1
    assert layer["primes"] == primes
    assert layer["offsets"] == [sum(primes[:i]) for i in range(len(primes))]
    multiple = math.lcm(256, parts)
    padded = -(-sum(primes) // multiple) * multiple
    assert (layer["table_rows"], layer["padded_rows"]) == (sum(primes), padded)
    assert (layer["rows_per_part"], layer["enp"]) == (padded // parts, parts)
    for position in range(len(ids)):
        rows = []
        for n in range(2, engram["ngram"] + 1):
            mixed = 0
            for k in range(n):
                token = ids[position - k] if position >= k else 0  # before the start
                mixed ^= wrapped(token * multipliers[k])
            for _ in range(engram["heads"]):
                rows.append(mixed % primes[len(rows)] + layer["offsets"][len(rows)])  # Python's % is not negative
        assert layer["rows"][position] == rows, position
        assert layer["owners"][position] == [row // (padded // parts) for row in rows]
    assert len(layer["rows"]) == len(layer["owners"]) == len(ids)
