# Completion of retinue for fish: retinue --show-completion fish | source
function __retinue_complete
    set -l found (env _RETINUE_COMPLETE=fish _RETINUE_LINE=(commandline -cp | string collect) retinue 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command retinue --no-files --keep-order --arguments '(__retinue_complete)'
