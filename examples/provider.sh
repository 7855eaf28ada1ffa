#!/bin/sh
# A provider in shell, for `provider = "script"` (see examples/script.toml): a machine is a folder,
# and a file of labels beside it that is written last and removed last.
# One JSON object comes in on one line, one goes out.
set -eu
root=${XDG_DATA_HOME:-$HOME/.local/share}/simstim-shell-example
mkdir -p "$root"
read -r request
field() { printf '%s\n' "$request" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
name=$(field name)
machine=$root/$name

case $(field verb) in
  list)
    fleet=$(field fleet) comma=
    printf '{"machines":['
    for labels in "$root"/*.labels; do
      grep -q "\"fleet\":\"$fleet\"" "$labels" 2>/dev/null || continue
      name=$(basename "$labels" .labels)
      state=$(cat "$root/$name/state" 2>/dev/null || echo stopped)
      printf '%s{"id":"%s","name":"%s","state":"%s","labels":%s}' "$comma" \
        "$name" "$name" "$state" "$(cat "$labels")"
      comma=,
    done
    printf ']}\n'
    ;;
  create)
    mkdir -p "$machine/home"
    echo created >"$machine/state"
    draft=$root/.new-$$
    printf '%s\n' "$request" | sed 's/.*"labels":\({[^}]*}\).*/\1/' >"$draft"
    # A link is whole, and fails where the name is taken.
    ln "$draft" "$machine.labels" 2>/dev/null || { rm "$draft"; echo "$name exists" >&2; exit 73; }
    rm "$draft"
    printf '{"id":"%s"}\n' "$name"
    ;;
  start) echo running >"$machine/state"; echo '{}' ;;
  stop)
    # Its processes are those that carry its name.
    for process in /proc/[0-9]*; do
      grep -qzx "SHELL_EXAMPLE=$name" "$process/environ" 2>/dev/null || continue
      kill "${process#/proc/}" 2>/dev/null || true
    done
    echo stopped >"$machine/state"; echo '{}'
    ;;
  destroy) rm -rf "$machine"; rm -f "$machine.labels"; echo '{}' ;;
  connect)
    printf '{"command":["env","-C","%s/home","HOME=%s/home","SHELL_EXAMPLE=%s"]}\n' \
      "$machine" "$machine" "$name"
    ;;
  *) echo "unknown verb" >&2; exit 1 ;;
esac
