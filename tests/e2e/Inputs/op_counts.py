# SPDX-License-Identifier: Apache-2.0
"""Reads `run --json` on stdin, and prints how often a step has each of the named ops: `op_counts.py attention "await fetch"`."""
import json
import sys

counts = {line["op"]: line["count"] for line in json.load(sys.stdin)["per_op"]}
for name in sys.argv[1:]:
    print(f"{name} = {counts.get(name, 0):g}")
