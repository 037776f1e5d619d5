# SPDX-License-Identifier: Apache-2.0
#
# lit's configuration for every suite: %paratope is the built tool, %topologies the shipped files. Files without a
# RUN line are inputs of other tests.
import os
import subprocess
import sys

import lit.formats

config.name = "paratope-" + config.suite
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".toml", ".mlir", ".test"]
config.excludes = ["Inputs", "inputs"]
config.test_source_root = os.path.join(config.source_root, "tests", config.suite)
config.environment["NO_COLOR"] = "1"
# LLVM's headers poison their arenas in sanitized code, and the packaged libMLIR, which is not sanitized, allocates from
# them unaware: user poisoning is off, everything else is on.
config.environment["ASAN_OPTIONS"] = "allow_user_poisoning=0"
config.environment["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
config.environment["PATH"] = os.pathsep.join([config.llvm_tools_dir, config.environment.get("PATH", "")])
config.substitutions.append(("%paratope-exec", os.path.join(config.tools_dir, "paratope-exec")))
config.substitutions.append(("%paratope-lsp", os.path.join(config.tools_dir, "paratope-lsp")))
config.substitutions.append(("%paratope", os.path.join(config.tools_dir, "paratope")))
# A Python that has numpy, for the oracle; tests that need one say REQUIRES: numpy.
for python in (sys.executable, "/usr/bin/python3"):
    if subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode == 0:
        config.available_features.add("numpy")
        config.substitutions.append(("%numpy-python", python))
        break
config.substitutions.append(("%topologies", os.path.join(config.source_root, "topologies")))
