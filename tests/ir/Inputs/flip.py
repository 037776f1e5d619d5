# SPDX-License-Identifier: Apache-2.0
#
# flip.py FILE EVERY TOOL: `TOOL check` on FILE with one byte flipped, for every EVERY-th byte; fails on a signal or a hang.
import subprocess
import sys

path, every, tool = sys.argv[1], int(sys.argv[2]), sys.argv[3]
data = open(path, "rb").read()
for at in range(0, len(data), every):
    damaged = path + ".flipped.mlirbc"
    with open(damaged, "wb") as out:
        out.write(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
    code = subprocess.run([tool, "check", damaged], capture_output=True, timeout=30).returncode
    if code not in (0, 1):
        sys.exit(f"byte {at}: exit code {code}")
