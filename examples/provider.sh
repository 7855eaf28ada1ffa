#!/bin/sh
# A provider in shell, for `provider = "script"` (see examples/script.toml): a machine is a folder.
# One JSON object comes in on one line, one goes out.
set -eu
root=${XDG_DATA_HOME:-$HOME/.local/share}/simstim-shell-example
mkdir -p "$root"
read -r request
field() { printf '%s\n' "$request" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
machine=$root/$(field name)

case $(field verb) in
  list)
    fleet=$(field fleet) comma=
    printf '{"machines":['
    for folder in "$root"/*/; do
      grep -q "\"fleet\":\"$fleet\"" "$folder/labels" 2>/dev/null || continue
      name=$(basename "$folder")
      printf '%s{"id":"%s","name":"%s","state":"%s","labels":%s}' "$comma" \
        "$name" "$name" "$(cat "$folder/state")" "$(cat "$folder/labels")"
      comma=,
    done
    printf ']}\n'
    ;;
  create)
    # The labels are complete before the folder has its name.
    draft=$root/.new-$$
    mkdir "$draft" "$draft/home"
    printf '%s\n' "$request" | sed 's/.*"labels":\({[^}]*}\).*/\1/' >"$draft/labels"
    echo created >"$draft/state"
    if [ -e "$machine" ]; then rm -r "$draft"; echo "$machine exists" >&2; exit 73; fi
    mv "$draft" "$machine"
    printf '{"id":"%s"}\n' "$(field name)"
    ;;
  start) echo running >"$machine/state"; echo '{}' ;;
  stop) echo stopped >"$machine/state"; echo '{}' ;;
  destroy) rm -rf "$machine"; echo '{}' ;;
  connect) printf '{"command":["env","-C","%s/home","HOME=%s/home"]}\n' "$machine" "$machine" ;;
  *) echo "unknown verb" >&2; exit 1 ;;
esac
