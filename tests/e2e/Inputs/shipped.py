# SPDX-License-Identifier: Apache-2.0
"""Every shipped topology and each of its variants: what `check` and `run --tiny --verify` say of it, one line a topology.

    shipped.py PARATOPE TOPOLOGIES
"""
import json
import pathlib
import re
import subprocess
import sys

tool, root = sys.argv[1], pathlib.Path(sys.argv[2])
failed = False


def ask(*arguments):
    """The JSON document that a command printed, and its exit code."""
    done = subprocess.run([tool, *arguments, "--json"], capture_output=True, text=True)
    try:
        return json.loads(done.stdout), done.returncode
    except ValueError:
        sys.exit(f"{' '.join(arguments)}: exit code {done.returncode}, no JSON: {done.stdout}{done.stderr}")


for folder in ("deepinfer", "lessons", "peers"):
    files = sorted((root / folder).glob("*.toml"))
    assert files, folder
    for file in files:
        variants = re.findall(r"^\[variant\.([\w-]+)\]", file.read_text(), re.MULTILINE)
        for name in [str(file)] + [f"{file}#{variant}" for variant in variants]:
            short = name[len(str(root)) + 1 :]
            check, check_code = ask("check", name)
            said = " ".join(sorted({d["code"] for d in check["diagnostics"] if d["severity"] != "remark"}))
            line = f"{short}: check {'ok' if check['ok'] and check_code == 0 else 'refused'}{said and ' ' + said}"
            world = ask("groups", name)[0]["world"]
            if world <= 64:
                # Beyond 8 ranks a token each is work enough.
                few = ["--set", "workload.tokens_per_rank=1"] if world > 8 else []
                run, run_code = ask("run", name, "--tiny", "--verify", *few)
                good = run_code == 0 and run["ok"] and run["verify"]["ok"]
                line += f", {run['world']} ranks {'equal the reference' if good else 'DIFFER'}"
            print(line)
