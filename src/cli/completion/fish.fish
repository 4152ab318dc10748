# Completion of cephlet for fish, as `cephlet completion fish` prints it.

# The words before the cursor that are neither options nor values of these.
function __cephlet_words
    set -l value no
    for word in (commandline -opc)[2..]
        if test $value = yes
            set value no
            continue
        end
        switch $word
            case '--*=*' @FLAGS@ --help
            case '-*'
                set value yes
            case '*'
                echo $word
        end
    end
end

# __cephlet_at COUNT NAME…: whether these words and so many others stand there.
function __cephlet_at
    set -l words (__cephlet_words)
    set -l name $argv[2..-1]
    test (count $words) -eq (math (count $name) + $argv[1]); and string match -q -- "$name *" "$words "
end

# __cephlet_in NAME…: whether the words there begin with these.
function __cephlet_in
    set -l words (__cephlet_words)
    string match -q -- "$argv *" "$words "
end

complete -c cephlet -f
complete -c cephlet -l help -d 'show the help'
@COMMANDS@
