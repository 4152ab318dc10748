#compdef cephlet
# Completion of cephlet for zsh, as `cephlet completion zsh` prints it.

_cephlet_volumes() {
  local -a names=(${(f)"$(cephlet completion names 2>/dev/null)"})
  compadd "$@" -a names
}

# _cephlet_choose COMMAND:ABOUT…
_cephlet_choose() {
  local -a found=("$@")
  _describe command found
}

# _cephlet_arguments COUNT SPECIFICATION…: behind so many words that name the command.
_cephlet_arguments() {
  shift $1 words
  ((CURRENT -= $1))
  shift
  _arguments "$@" '--help[show the help]'
}

_cephlet() {
  case "${(j: :)words[2,CURRENT - 1]} " in
@COMMANDS@
  esac
}

# Read by `source`, or loaded when it is first called.
if [[ ${funcstack[1]} == _cephlet ]]; then
  _cephlet "$@"
else
  compdef _cephlet cephlet
fi
