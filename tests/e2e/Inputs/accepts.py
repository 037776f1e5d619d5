# SPDX-License-Identifier: Apache-2.0
"""`accepts.py SCHEMA.json FILE…`: fails on what the schema does not accept, and on a schema that is none."""
import json
import sys
import tomllib

import jsonschema

with open(sys.argv[1], encoding="utf-8") as file:
    schema = json.load(file)
validator = jsonschema.validators.validator_for(schema)
validator.check_schema(schema)
findings = []
for path in sys.argv[2:]:
    with open(path, "rb") as file:
        document = json.load(file) if path.endswith(".json") else tomllib.load(file)
    findings += [f"{path}: {found.message[:200]}" for found in validator(schema).iter_errors(document)]
print("\n".join(findings))
sys.exit(1 if findings or len(sys.argv) < 3 else 0)
