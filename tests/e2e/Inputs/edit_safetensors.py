# SPDX-License-Identifier: Apache-2.0
"""Spoils a safetensors file between stdin and stdout: `add NAME` of one float, `remove NAME` and its bytes, `reshape NAME` to one dim."""
import json
import math
import struct
import sys

verb, name = sys.argv[1:]
data = sys.stdin.buffer.read()
(length,) = struct.unpack("<Q", data[:8])
header = json.loads(data[8 : 8 + length])
body = data[8 + length :]
if verb == "add":
    header[name] = {"dtype": "F32", "shape": [1], "data_offsets": [len(body), len(body) + 4]}
    body += bytes(4)
elif verb == "remove":
    begin, end = header.pop(name)["data_offsets"]
    body = body[:begin] + body[end:]
    for key, tensor in header.items():
        if key != "__metadata__" and tensor["data_offsets"][0] >= end:
            tensor["data_offsets"] = [offset - (end - begin) for offset in tensor["data_offsets"]]
else:
    header[name]["shape"] = [math.prod(header[name]["shape"])]
text = json.dumps(header).encode()
sys.stdout.buffer.write(struct.pack("<Q", len(text)) + text + body)
