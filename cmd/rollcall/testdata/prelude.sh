set -o pipefail
export COLUMNS=80 NO_COLOR=1 # documents show what a terminal does, in black
failed() {
  if [ "${fails[$2]-}" = "$1" ]; then met[$2]=1; return; fi
  echo "exit code $1 of: $2"
  exit 1
}
missed() { for c in "${!fails[@]}"; do [ "${met[$c]-}" ] || echo "missed $c"; done; echo "missed all"; }
trap 'failed "$?" "$BASH_COMMAND"' ERR
trap 'kill $(jobs -p) 2>/dev/null' EXIT
