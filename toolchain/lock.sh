#!/usr/bin/env bash
# Compile every hashed requirements file. Usage: toolchain/lock.sh UV
set -euo pipefail
compile() {
  "$uv" pip compile --quiet --upgrade --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-annotate --no-header "$@"
}
uv=$1
compile --all-extras pyproject.toml -o requirements.txt
compile --group dev -c requirements.txt -o toolchain/dev.txt
# What a project installs beside the wheel, by the extra that it needs (millrace/cli/plan/vendor_millrace_wheel.py).
project() {
  "$uv" pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
    --no-emit-package millrace-streams -c toolchain/dev.txt -c requirements.txt pyproject.toml "$@"
}
project -o toolchain/locks/base.txt
project --extra deploy -o toolchain/locks/deploy.txt
project --extra sandbox toolchain/project.in -o toolchain/locks/sandbox.txt
for name in java mutants node uv; do
  compile "toolchain/$name.in" -o "toolchain/$name.txt"
done
# Spark lines beside the one of pyproject.toml.
.venv/bin/python -c 'from millrace.config.engines.versions import *; [print(l.name, l.spark) for l in LINES.values() if not l.is_default_line]' |
while read -r line spark; do
  echo "pyspark==$spark" | compile - -o "toolchain/spark-$line.txt"
done
# LocalStack 4.9.2 breaks with what its dependencies became after this day.
compile --exclude-newer 2025-10-25 toolchain/localstack.in -o toolchain/localstack.txt
