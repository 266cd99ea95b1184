# Sourced by scripts/run and scripts/test: makes .venv with what the lock says, and does nothing where that is done.
# usage: ensure_venv EXTRAS     (EXTRAS: "" or "[dev]")

python_of_choice() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  echo "xlaexp needs Python 3.11, 3.12 or 3.13; found $(${PYTHON:-python3} --version 2>&1 || echo none)." \
    "Name one with PYTHON=/path/to/python $0" >&2
  return 1
}

ensure_venv() {
  local extras=$1 python stamp wanted
  # The dev environment serves runs as well.
  wanted=$(cat pyproject.toml constraints.txt | cksum)
  for stamp in "[dev]" "$extras"; do
    if [ "$(cat ".venv/.installed$stamp" 2>/dev/null)" = "$wanted" ] && [ -x .venv/bin/python ]; then return; fi
  done
  python=$(python_of_choice)
  echo "Setting up .venv with $("$python" --version); this takes a few minutes, once." >&2
  # An interrupted installation leaves no stamp, so that it is done again.
  rm -f .venv/.installed*
  "$python" -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".$extras"
  echo "$wanted" > ".venv/.installed$extras"
}
