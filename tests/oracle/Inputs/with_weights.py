# SPDX-License-Identifier: Apache-2.0
# with_weights.py PLAN.json WEIGHTS: the plan with its model's weights from elsewhere, on stdout.
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    plan = json.load(file)
plan["model"]["weights"] = sys.argv[2]
json.dump(plan, sys.stdout)
