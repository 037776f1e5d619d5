# SPDX-License-Identifier: Apache-2.0
# damage.py FILE TENSOR: flips a bit of the first element of a tensor of four-byte elements, in place: its sign
# in floats, the lowest bit in integers.
import json
import sys

with open(sys.argv[1], "r+b") as file:
    size = int.from_bytes(file.read(8), "little")
    entry = json.loads(file.read(size))[sys.argv[2]]
    at, bit = (3, 0x80) if entry["dtype"] == "F32" else (0, 0x01)
    place = 8 + size + entry["data_offsets"][0] + at
    file.seek(place)
    old = file.read(1)[0]
    file.seek(place)
    file.write(bytes([old ^ bit]))
