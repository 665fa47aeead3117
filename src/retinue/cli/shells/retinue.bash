# Completion of retinue for bash: eval "$(retinue --show-completion bash)"
_retinue_completion() {
    local IFS=$'\n'
    COMPREPLY=($(
        _RETINUE_COMPLETE=bash _RETINUE_LINE="${COMP_LINE:0:$COMP_POINT}" _RETINUE_BREAKS="$COMP_WORDBREAKS" \
            "$1" 2>/dev/null
    ))
}
complete -o default -F _retinue_completion retinue
