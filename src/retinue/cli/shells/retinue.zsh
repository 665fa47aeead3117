#compdef retinue
# Completion of retinue for zsh: eval "$(retinue --show-completion zsh)", or as ~/.zfunc/_retinue
_retinue() {
    local line
    local -a found
    while IFS= read -r line; do
        found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done < <(_RETINUE_COMPLETE=zsh _RETINUE_LINE="${(j: :)words[1,CURRENT]}" "${words[1]}" 2>/dev/null)
    if (( ${#found} )); then
        _describe 'retinue' found
    else
        _files
    fi
}
if [[ "${funcstack[1]}" = "_retinue" ]]; then
    _retinue "$@"
else
    compdef _retinue retinue
fi
