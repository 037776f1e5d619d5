# SPDX-License-Identifier: Apache-2.0
"""Reads stdin as one JSON document, and prints the values at dotted paths, each on a line: `get.py groups.dp.members ok`.

A path is keys and list indices; `len` at its end gives a length. Fails on anything but exactly one document.
"""
import json
import sys

document = json.load(sys.stdin)
for path in sys.argv[1:]:
    value = document
    for part in path.split("."):
        if part == "len" and not (isinstance(value, dict) and "len" in value):
            value = len(value)
        else:
            value = value[int(part)] if isinstance(value, list) else value[part]
    print(f"{path} = {json.dumps(value, ensure_ascii=False)}")
