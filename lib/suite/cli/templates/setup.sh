#!/usr/bin/env bash
# Runs once, when Gradescope builds the image. The package needs Python 3.11, and Ubuntu 22.04 has 3.10.
set -euo pipefail
root="${AUTOGRADER:-/autograder}"
python=python3
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    apt-get update
    apt-get install -y python3.11 python3.11-venv
    python=python3.11
fi
if ! "$python" -m venv "$root/python"; then
    apt-get update
    apt-get install -y python3-venv
    "$python" -m venv "$root/python"
fi
echo 'chalk-diagrams>=0.2.2,<0.3 jinja2>=3.1,<4 joblib>=1.4,<2 msgspec>=0.20,<0.23 nbformat>=5.10,<6 pyseccomp typer rich' | xargs "$root/python/bin/pip" install --quiet
