# Completion of cephlet for bash, as `cephlet completion bash` prints it.

# Sets `names`, `words` and `options` for a command or a group of commands. A word, and what follows an option and `=`, is what is
# completed: VOLUME, PATH, FILE, another word in capital letters for free text, else all values, separated by commas.
_cephlet_command() {
  names=() words=()
  case $1 in
@COMMANDS@
    *) options=() ;;
  esac
}

# Prints what can stand where `kind` is asked for.
_cephlet_values() {
  case $1 in
    VOLUME) cephlet completion names 2>/dev/null ;;
    *[[:upper:]]*) ;;
    *) echo "${1//,/$'\n'}" ;;
  esac
}

# Sets `kind` to what follows an option: nothing after a flag.
_cephlet_option() {
  local option
  kind=
  for option in "${options[@]}"; do
    [[ $option == "$1="* ]] && kind=${option#*=}
  done
}

_cephlet() {
  local line=${COMP_LINE:0:COMP_POINT} current= kind= name= prefix= word begun at=0 given names words options
  # COMP_WORDS is of no use: it breaks words at colons, which IDs have.
  read -ra given <<<"$line"
  if [[ $line != *[[:space:]] ]]; then
    current=${given[-1]}
    unset 'given[-1]'
  fi
  _cephlet_command ''
  for word in "${given[@]:1}"; do
    if [[ -n $kind ]]; then
      kind= # the word is the value of an option
      continue
    fi
    case $word in
      --*=*) ;;
      -*) _cephlet_option "$word" ;;
      *)
        if ((${#names[@]})); then
          name+=${name:+ }$word
          _cephlet_command "$name"
        else
          at=$((at + 1))
        fi
        ;;
    esac
  done
  if [[ -z $kind && $current == --*=* ]]; then
    prefix=${current%%=*}=
    _cephlet_option "${prefix%=}"
  elif [[ -z $kind && $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "${options[*]%%=*}" -- "$current")
    return
  elif [[ -z $kind ]] && ((${#names[@]})); then
    mapfile -t COMPREPLY < <(compgen -W "${names[*]}" -- "$current")
    return
  elif [[ -z $kind ]]; then
    kind=${words[at]-}
  fi
  COMPREPLY=()
  case $kind in
    '') return ;;
    PATH | FILE)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -P "$prefix" -f -- "${current#"$prefix"}")
      ;;
    *) mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$(_cephlet_values "$kind")" -- "${current#"$prefix"}") ;;
  esac
  # Only what follows the last of its word breaks is replaced by readline.
  begun=${current%"${current##*[$COMP_WORDBREAKS]}"}
  COMPREPLY=("${COMPREPLY[@]#"$begun"}")
}

complete -F _cephlet cephlet
